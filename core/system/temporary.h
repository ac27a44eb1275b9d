#pragma once
// Temporary names next to output files, and removal of stale temporaries.
//
// "<name>.tmp-<process>-<host>-<boot>-<time>-<number>"; host and boot are hashes. The writer holds a flock until it
// exits: an acquired lock proves that the writer is gone. Other machines' temporaries are never touched.

#include <filesystem>
#include <string_view>

namespace quench {

// Name in the folder of `path` that no other process uses.
[[nodiscard]] std::filesystem::path temporary_name(const std::filesystem::path& path);

// True for names of temporary_name, from any machine.
[[nodiscard]] bool is_temporary_name(std::string_view name) noexcept;

// Locks a temporary until the descriptor is closed; no-op without file locks. False if another process holds it.
bool lock_temporary(int descriptor) noexcept;

// Deletes stale temporaries of `name` (empty: any) in `folder`, from this machine; files only a minute after their last
// change. Logs each. Never throws; undeletable files stay.
void remove_stale_temporaries(const std::filesystem::path& folder, std::string_view name = {}) noexcept;

// Temporary folder next to `target`, removed on destruction unless released.
class StagingFolder {
 public:
  // Creates missing parents. Throws io naming the folder.
  explicit StagingFolder(const std::filesystem::path& target);
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  // Keeps the folder; call after its final rename.
  void release() noexcept { released_ = true; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;
  bool released_ = false;
};

}  // namespace quench
