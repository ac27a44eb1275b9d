#pragma once
// Cache of the Hugging Face Hub on this machine, in the layout of huggingface_hub:
//
//   models--ORG--NAME/refs/REVISION           commit
//   models--ORG--NAME/blobs/ETAG              content; ETAG.incomplete: a part
//   models--ORG--NAME/snapshots/COMMIT/FILE   link to a blob
//   .locks/models--ORG--NAME/ETAG.lock        held while a blob is written

#include <filesystem>
#include <string>
#include <string_view>

#include "data/hub/hub_name.h"

namespace quench::hub {

// Folder of one repository.
struct CacheFolder {
  CacheFolder(const std::filesystem::path& cache, const HubName& name);

  std::filesystem::path repo, locks;

  [[nodiscard]] std::filesystem::path blob(std::string_view etag) const { return repo / "blobs" / etag; }
  [[nodiscard]] std::filesystem::path snapshot(std::string_view commit) const { return repo / "snapshots" / commit; }
  [[nodiscard]] std::filesystem::path ref(std::string_view revision) const { return repo / "refs" / revision; }
};

// Snapshot of a revision; empty: none. Reads two files at most and never the network.
[[nodiscard]] std::filesystem::path cached_snapshot(const std::filesystem::path& cache, const HubName& name);

// A path, or hf:ORG/NAME: its snapshot in the cache. Other texts, and names that the cache lacks, are returned as they
// are.
[[nodiscard]] std::string local_path(const std::string& text);
// The same; throws not_found with the download for a name that the cache lacks, bad_config for hf: before anything
// else.
[[nodiscard]] std::string require_local_path(const std::string& text);

}  // namespace quench::hub
