#include "train/checkpoint/run_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "core/check.h"
#include "core/file.h"
#include "core/json.h"
#include "core/log.h"

namespace quench {
namespace {

constexpr std::uint64_t kMaxLockBytes = 4096;

struct Holder {
  std::int64_t process = 0;
  std::string host;
};

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

// Empty process 0 when the file says nothing (released, or being written).
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

[[noreturn]] void fail_locked(const std::filesystem::path& folder, const Holder& holder, std::string_view advice) {
  const std::string who =
      holder.process == 0 ? "another process" : fmt::format("process {} on host {}", holder.process, holder.host);
  QUENCH_FAIL(ErrorCode::locked, "run folder {} is locked by {}; {}", folder.string(), who, advice);
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::error_code ignored;
  QUENCH_CHECK_AS(ErrorCode::io, std::filesystem::is_directory(folder, ignored), "cannot create the run folder {}: {}",
                  folder.string(), error ? error.message() : "a file of that name exists");
  folder_ = std::filesystem::canonical(folder, error);
  QUENCH_CHECK_AS(ErrorCode::io, !error, "cannot resolve the run folder {}: {}", folder.string(), error.message());
  const auto path = folder_ / ".lock";
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  QUENCH_CHECK_AS(ErrorCode::io, file_ >= 0, "cannot open {}: {}; is the run folder writable?", path.string(),
                  errno_text(errno));
  try {
    const int result = ::flock(file_, LOCK_EX | LOCK_NB);
    const int reason = result == 0 ? 0 : errno;
    const Holder holder = read_holder(path);
    if (reason == EWOULDBLOCK) fail_locked(folder_, holder, "wait for that run to end, or choose another folder");
    if (reason != 0) {
      QUENCH_LOG_WARN("{}: this file system has no locks ({}); relying on the process named in the file", path.string(),
                      errno_text(reason));
      const bool here = holder.host == host_name();
      if (holder.process != 0 && (!here || (holder.process != ::getpid() && is_running(holder.process))))
        fail_locked(folder_, holder,
                    "if that process no longer runs, delete " + path.string() + "; otherwise choose another folder");
    }
    if (holder.process != 0)
      QUENCH_LOG_WARN("run folder {}: process {} on host {} ended without releasing its lock; taking over",
                      folder_.string(), holder.process, holder.host);
    write_holder(file_, path);
  } catch (...) {
    ::close(file_);
    throw;
  }
}

RunLock::~RunLock() {
  // The file stays: removing it would let two later processes lock two different files of that name.
  if (::ftruncate(file_, 0) != 0)
    QUENCH_LOG_WARN("cannot clear the lock of run folder {}: {}", folder_.string(), errno_text(errno));
  ::close(file_);
}

}  // namespace quench
