#pragma once
// Places that downloaded files go to: the cache of the hub, or a folder of the user's.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/hub/hub_name.h"
#include "data/hub/listing.h"

namespace quench::hub {

// Destination of the files of one commit. Different files may be asked for by several threads.
class Destination {
 public:
  virtual ~Destination() = default;

  // Throws bad_config before the work for what is in the way.
  virtual void check(const std::vector<HubFile>& files) = 0;
  // The whole content is there, and under the file's name.
  [[nodiscard]] virtual bool has(const HubFile& file) = 0;
  // File that takes the content until it is whole, on the file system of its final place; the name has the digest, so
  // that a part belongs to one content.
  [[nodiscard]] virtual std::filesystem::path incomplete(const HubFile& file) const = 0;
  // Locked while the file is written.
  [[nodiscard]] virtual std::filesystem::path lock(const HubFile& file) const = 0;
  // Moves the complete content to its place, atomically.
  virtual void place(const HubFile& file) = 0;
  // After all files: the name of the revision stands for this commit from now on.
  virtual void finish() = 0;
  // Folder whose files are those of the repository.
  [[nodiscard]] virtual std::filesystem::path folder() const = 0;
};

// Layout: data/hub/cache.h. Replaces nothing but the ref.
[[nodiscard]] std::unique_ptr<Destination> cache_destination(const std::filesystem::path& cache, const HubName& name,
                                                             const std::string& commit);
// Parts and locks are in FOLDER/.cache/huggingface/download, as of `hf download`. Files of the same name and other
// content are refused without `overwrite`; links below the folder always.
[[nodiscard]] std::unique_ptr<Destination> folder_destination(const std::filesystem::path& folder, bool overwrite);

}  // namespace quench::hub
