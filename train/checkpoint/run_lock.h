#pragma once
// Exclusive lock of a run folder.

#include <filesystem>

namespace quench {

// Holds <folder>/.lock (flock) for its lifetime; the file records process and host. The kernel releases the lock at
// process exit. On file systems without locks, the recorded process decides: a dead process of this host is replaced,
// one of another host is refused. The folder is locked too where supported, so that deleting the file does not release
// the lock.
class RunLock {
 public:
  // Creates the folder if absent. Throws Error(locked) "run folder ... is locked by process P on host H", or io.
  explicit RunLock(const std::filesystem::path& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Checks that <folder>/.lock is still the locked file; recreates and locks it if deleted. Throws Error(locked) if
  // another process holds the folder. Call before operations that require a single writer.
  void confirm();

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

 private:
  [[nodiscard]] int open_file() const;
  void lock_file();
  void close_all() noexcept;

  std::filesystem::path folder_;  // absolute, symbolic links resolved
  int file_ = -1;
  int directory_ = -1;
};

}  // namespace quench
