#pragma once
// Interface of the hub for one repository: reading.

#include <string>
#include <string_view>

#include "data/hub/http_client.h"
#include "data/hub/hub_name.h"
#include "data/hub/listing.h"

namespace quench::hub {

// URLs of a repository.
struct RepoUrls {
  RepoUrls(const HubSettings& settings, const HubName& name);
  std::string api;   // ENDPOINT/api/models/ORG/NAME
  std::string page;  // ENDPOINT/ORG/NAME

  [[nodiscard]] std::string file(std::string_view commit, std::string_view path) const;
};

// Commit of the name's revision. Errors: require_success().
[[nodiscard]] std::string resolve_revision(HttpClient& client, const HubName& name);
// Files of that commit, of all pages. Throws corrupt as read_tree_page() and require_distinct() do.
[[nodiscard]] std::vector<HubFile> list_files(HttpClient& client, const HubName& name, std::string_view commit);

// Throws for an answer that is no success: not_found (repository, revision, file), failed (not allowed, gated, unknown
// token) or io, each with what to do. `what`: the file or the action, for messages.
void require_success(const HttpClient& client, const HubName& name, const HttpResponse& response,
                     std::string_view what);

}  // namespace quench::hub
