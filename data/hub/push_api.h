#pragma once
// Interface of the hub for one repository: writing.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/hub/http_client.h"
#include "data/hub/hub_name.h"

namespace quench::hub {

struct PushFile {
  std::string path;            // in the repository
  std::filesystem::path file;  // here
  std::uint64_t size = 0;
  bool is_lfs = false;   // as the hub decides
  bool ignored = false;  // by the hub's .gitignore
  std::string digest{};  // SHA-256 of a file in LFS, else that of the git blob
};

// Changes of a push at the hub before its commit.
enum class RevisionState : std::uint8_t { existing, new_branch, new_repository };

// Makes the repository or the branch if there is none. Errors: require_success().
RevisionState ensure_revision(HttpClient& client, const HubName& name, bool is_private);

// Sets is_lfs and ignored of each file by the hub's rules.
void ask_upload_modes(HttpClient& client, const HubName& name, std::vector<PushFile>& files);

// Sends the contents of LFS files that the hub's storage lacks, in parts where the hub asks for them. `sent`: bytes so
// far, with contents that were there. Throws failed for an object that the hub refuses.
void upload_lfs(HttpClient& client, const HubName& name, const std::vector<const PushFile*>& files,
                const std::function<void(std::uint64_t)>& sent);

struct CommitText {
  std::string message;
  bool as_request = false;  // as a pull request
};

struct CommitResult {
  std::string commit;
  std::string url;  // page of the commit or the pull request
};

// One commit of all files; contents that are not in LFS are part of it.
[[nodiscard]] CommitResult commit_files(HttpClient& client, const HubName& name,
                                        const std::vector<const PushFile*>& files, const CommitText& text);

}  // namespace quench::hub
