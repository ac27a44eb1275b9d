#pragma once
// Upload of a folder's files to a repository of the Hugging Face Hub.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/hub/http_client.h"
#include "data/hub/hub_name.h"
#include "data/hub/settings.h"

namespace quench::hub {

struct PushOptions {
  bool is_private = false;  // a public repository is refused, a new one is private
  std::string message = "Upload model";
  bool as_request = false;  // a pull request in place of a commit to the branch
  StopPoll stop{};
  std::function<void(std::uint64_t done, std::uint64_t total)> progress{};  // bytes of large files
};

struct PushResult {
  std::vector<std::string> sent;       // committed now
  std::vector<std::string> unchanged;  // as the repository has them
  std::vector<std::string> ignored;    // by the repository's .gitignore
  std::string commit{};                // empty: nothing was to be sent
  std::string url{};                   // page of the commit, the pull request or the repository
  bool new_repository = false;
};

// Files of `folder`, in one commit; no file of the repository is removed. Files that the branch has are not sent, and
// contents that the hub's storage has are not sent again: a push that was stopped continues with the files that are
// missing. Makes repository and branch if there is none. Throws bad_config without a token or for a name without
// organization, Stopped, and the errors of push_api.h.
PushResult push(const HubSettings& settings, const HubName& name, const std::filesystem::path& folder,
                const std::vector<std::string>& files, const PushOptions& options);

}  // namespace quench::hub
