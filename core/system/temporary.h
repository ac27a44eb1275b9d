#pragma once
// Temporaries next to output files: "<name>.tmp-<process>-<host>-<boot>-<time>-<number>"; host and boot are hashes. The
// writer holds a flock until it exits: an acquired lock proves it gone. Other machines' temporaries are never touched.

#include <filesystem>
#include <string_view>

namespace quench {

inline constexpr std::string_view kTemporaryMark = ".tmp-";

// Unique among processes.
[[nodiscard]] std::filesystem::path temporary_name(const std::filesystem::path& path);

// From any machine.
[[nodiscard]] bool is_temporary_name(std::string_view name) noexcept;

// Until the descriptor is closed; no-op without file locks. False if another process holds it.
bool lock_temporary(int descriptor) noexcept;

// Stale temporaries of `name` (empty: any), from this machine; files only a minute after their last change. Logs each.
// Never throws.
void remove_stale_temporaries(const std::filesystem::path& folder, std::string_view name = {}) noexcept;

// Removed on destruction unless released.
class StagingFolder {
 public:
  // Creates parents. Throws io naming the folder.
  explicit StagingFolder(const std::filesystem::path& target);
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  // After the final rename.
  void release() noexcept { released_ = true; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;
  bool released_ = false;
};

}  // namespace quench
