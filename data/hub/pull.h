#pragma once
// Download of a repository of the Hugging Face Hub.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "data/hub/file_choice.h"
#include "data/hub/http_client.h"
#include "data/hub/hub_name.h"
#include "data/hub/settings.h"

namespace quench::hub {

struct PullOptions {
  FilePatterns patterns{};
  std::filesystem::path folder{};                                           // empty: the cache
  bool overwrite = false;                                                   // files of other content in `folder`
  int workers = 8;                                                          // files at a time
  StopPoll stop{};                                                          // asked by the calling thread
  std::function<void(std::uint64_t done, std::uint64_t total)> progress{};  // bytes; calling thread
};

// Commit of the revision and the files to download.
struct PullPlan {
  HubName name;
  std::string commit;
  FileChoice choice;

  [[nodiscard]] std::uint64_t bytes() const;
};

struct PullResult {
  std::filesystem::path folder;  // snapshot in the cache, or options.folder
  std::size_t fetched_files = 0;
  std::uint64_t fetched_bytes = 0;  // received now; the rest was there
};

// Asks the hub. Errors: require_success(), choose_files().
[[nodiscard]] PullPlan plan_pull(const HubSettings& settings, const HubName& name, const PullOptions& options);

// Downloads what is missing. Each file appears under its name when its digest is that of the hub; interrupted, parts
// remain and the next call continues them. Throws before the work: no_space (bytes needed and free), bad_config for
// obstacles in the folder; then Stopped, corrupt (wrong digest twice), and the errors of HttpClient.
PullResult pull(const HubSettings& settings, const PullPlan& plan, const PullOptions& options);

}  // namespace quench::hub
