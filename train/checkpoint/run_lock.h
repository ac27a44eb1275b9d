#pragma once
// Exclusive lock of a run's folders.

#include <filesystem>
#include <string_view>

namespace quench {

// Holds <folder>/.lock (flock), which records process and host; released by the kernel at process exit. On file systems
// without locks the recorded process decides: a dead process of this host is replaced, one of another host refused. The
// folder is locked too where supported, against deletion of the file.
class RunLock {
 public:
  // Creates the folder if absent. Throws Error(locked) "run folder ... is locked by process P on host H", or io.
  // `kind`: for messages, a literal.
  explicit RunLock(const std::filesystem::path& folder, std::string_view kind = "run folder");
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Recreates and locks a deleted <folder>/.lock. Throws Error(locked) if another process holds the folder. Call before
  // operations that require a single writer.
  void confirm();

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

 private:
  [[nodiscard]] int open_file() const;
  void lock_file();
  void close_all() noexcept;

  std::string_view kind_;
  std::filesystem::path folder_;  // absolute, links resolved
  int file_ = -1;
  int directory_ = -1;
};

}  // namespace quench
