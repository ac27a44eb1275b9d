#include "train/checkpoint/run_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "core/json/json.h"
#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"

namespace quench {
namespace {

constexpr std::uint64_t kMaxLockBytes = 4096;
constexpr std::string_view kWait = "wait for that run to end, or choose another folder";

struct Holder {
  std::int64_t process = 0;
  std::string host;
};

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

// Process 0: empty file (released, or being written).
Holder read_holder(const std::filesystem::path& path) {
  try {
    const Json json = Json::parse(read_file(path, kMaxLockBytes));
    return {json.at("process").as_int(), json.at("host").as_string()};
  } catch (const Error&) {
    return {};
  }
}

void write_holder(int file, const std::filesystem::path& path) {
  const Json json = Json::Object{{"process", std::int64_t{::getpid()}}, {"host", host_name()}};
  const std::string text = json.dump() + "\n";
  const bool written =
      ::ftruncate(file, 0) == 0 && ::pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  QUENCH_CHECK_AS(ErrorCode::io, written, "cannot write {}: {}", path.string(), errno_text(errno));
}

bool is_running(std::int64_t process) {
  return process > 0 && (::kill(static_cast<pid_t>(process), 0) == 0 || errno == EPERM);
}

std::filesystem::path lock_path(const std::filesystem::path& folder) {
  return folder / ".lock";
}

bool is_named(int file, const std::filesystem::path& path) {
  struct stat held {};
  struct stat named {};
  return ::fstat(file, &held) == 0 && ::lstat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
         held.st_ino == named.st_ino;
}

[[noreturn]] void fail_locked(std::string_view kind, const std::filesystem::path& folder, const Holder& holder,
                              std::string_view advice) {
  const std::string who =
      holder.process == 0 ? "another process" : fmt::format("process {} on host {}", holder.process, holder.host);
  QUENCH_FAIL(ErrorCode::locked, "{} {} is locked by {}; {}", kind, folder.string(), who, advice);
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& folder, std::string_view kind) : kind_(kind) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::error_code ignored;
  QUENCH_CHECK_AS(ErrorCode::io, std::filesystem::is_directory(folder, ignored), "cannot create the {} {}: {}", kind,
                  folder.string(), error ? error.message() : "a file of that name exists");
  folder_ = std::filesystem::canonical(folder, error);
  QUENCH_CHECK_AS(ErrorCode::io, !error, "cannot resolve the {} {}: {}", kind, folder.string(), error.message());
  // Deleting the file must not admit a second trainer. Without folder locks the file alone decides.
  directory_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory_ >= 0 && ::flock(directory_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(directory_);
    fail_locked(kind_, folder_, read_holder(lock_path(folder_)), kWait);
  }
  try {
    lock_file();
  } catch (...) {
    close_all();
    throw;
  }
}

RunLock::~RunLock() {
  // The file is kept: else two processes could lock two files of that name.
  if (file_ >= 0 && ::ftruncate(file_, 0) != 0)
    QUENCH_LOG_WARN("cannot clear the lock of {} {}: {}", kind_, folder_.string(), errno_text(errno));
  close_all();
}

void RunLock::confirm() {
  const auto path = lock_path(folder_);
  if (file_ >= 0 && is_named(file_, path)) return;
  QUENCH_LOG_WARN("{} was deleted or replaced while the run holds it; taking it again", path.string());
  if (file_ >= 0) ::close(file_);
  file_ = -1;
  try {
    lock_file();
  } catch (...) {
    if (file_ >= 0) ::close(file_);  // another process's: must not be cleared
    file_ = -1;
    throw;
  }
}

int RunLock::open_file() const {
  const auto path = lock_path(folder_);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  QUENCH_CHECK_AS(ErrorCode::io, file >= 0, "cannot open {}: {}; is the {} writable?", path.string(), errno_text(errno),
                  kind_);
  return file;
}

void RunLock::lock_file() {
  const auto path = lock_path(folder_);
  file_ = open_file();
  int result = ::flock(file_, LOCK_EX | LOCK_NB);
  // A deletion between the calls leaves a lock on an unlinked file.
  while (result == 0 && !is_named(file_, path)) {
    ::close(file_);
    file_ = open_file();
    result = ::flock(file_, LOCK_EX | LOCK_NB);
  }
  const int reason = result == 0 ? 0 : errno;
  const Holder holder = read_holder(path);
  if (reason == EWOULDBLOCK) fail_locked(kind_, folder_, holder, kWait);
  if (reason != 0) {
    QUENCH_LOG_WARN("{}: this file system does not support locks ({}); using the process named in the file",
                    path.string(), errno_text(reason));
    const bool here = holder.host == host_name();
    if (holder.process != 0 && (!here || (holder.process != ::getpid() && is_running(holder.process))))
      fail_locked(kind_, folder_, holder,
                  "if that process no longer runs, delete " + path.string() + "; otherwise choose another folder");
  }
  if (holder.process != 0)
    QUENCH_LOG_WARN("{} {}: process {} on host {} ended without releasing its lock; taking over", kind_,
                    folder_.string(), holder.process, holder.host);
  write_holder(file_, path);
}

void RunLock::close_all() noexcept {
  for (int* descriptor : {&file_, &directory_}) {
    if (*descriptor >= 0) ::close(*descriptor);
    *descriptor = -1;
  }
}

}  // namespace quench
