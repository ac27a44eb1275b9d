#pragma once
// Keeps two trainers out of one run folder.

#include <filesystem>

namespace quench {

// Holds <folder>/.lock (flock) while alive; the file names the holder's process and host. The kernel drops the lock
// with the process, so a dead trainer's lock is taken over. Where the file system has no locks, the process and host in
// the file decide: a dead process of this host is taken over, one of another host is refused. The folder itself is
// locked too, where that is possible: deleting the file lets nobody in.
class RunLock {
 public:
  // Creates the folder if need be. Throws Error(locked) "run folder ... is locked by process P on host H", or io.
  explicit RunLock(const std::filesystem::path& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Makes sure that the file at <folder>/.lock is still the one that is held, and takes a new one if it was deleted.
  // Throws Error(locked) when another process has the folder now. Call before what must have no other writer.
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
