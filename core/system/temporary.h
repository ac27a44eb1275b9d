#pragma once
// Temporary names beside what is being written, and what a killed process has left under them.
//
// A temporary is called "<name>.tmp-<process>-<host>-<boot>-<time>-<number>", where host and boot are hashes of the
// machine's name and of its present boot. Its writer holds a lock (flock) on it, which ends with the process: whoever
// gets the lock knows that the writer is gone. Those of other machines are never touched.

#include <filesystem>
#include <string_view>

namespace quench {

// A name in `path`'s folder that no other process uses.
[[nodiscard]] std::filesystem::path temporary_name(const std::filesystem::path& path);

// Whether temporary_name could have made this file name, on whatever machine.
[[nodiscard]] bool is_temporary_name(std::string_view name) noexcept;

// Marks a temporary as in use until the descriptor is closed; nothing where the file system has no locks. False when
// another process holds it.
bool lock_temporary(int descriptor) noexcept;

// Deletes the temporaries of `name` in `folder`, of any name if it is empty, that writers of this machine have left
// behind; a file counts only a minute after its last change. Logs each one. Never throws: what cannot be deleted stays.
void remove_stale_temporaries(const std::filesystem::path& folder, std::string_view name = {}) noexcept;

// A new folder under a temporary name beside `target`, removed with the object unless it was released.
class StagingFolder {
 public:
  // Creates missing parents. Throws io naming the folder.
  explicit StagingFolder(const std::filesystem::path& target);
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  // Call when the folder has got its final name: the object no longer removes it.
  void release() noexcept { released_ = true; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;
  bool released_ = false;
};

}  // namespace quench
