#pragma once
// Keeps two trainers out of one run folder.

#include <filesystem>

namespace quench {

// Holds <folder>/.lock (flock) while alive; the file names the holder's process, host and start time. The kernel drops
// the lock with the process, so a dead trainer's lock is taken over. Where the file system has no locks, the process
// and host in the file decide: a dead process of this host is taken over, one of another host is refused.
class RunLock {
 public:
  // Creates the folder if need be. Throws Error(locked) "run folder ... is locked by process P on host H", or io.
  explicit RunLock(const std::filesystem::path& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

 private:
  std::filesystem::path folder_;  // absolute, symbolic links resolved
  int file_ = -1;
};

}  // namespace quench
