#include "data/hub/partial_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"

namespace quench::hub {
namespace {

[[noreturn]] void fail_file(const std::filesystem::path& path) {
  const int error = errno;
  if (is_no_space(error))
    QUENCH_FAIL(ErrorCode::no_space,
                "{}: {}; what has arrived is kept: free some space, and the same command continues", path.string(),
                errno_text(error));
  QUENCH_FAIL(ErrorCode::io, "{}: {}", path.string(), errno_text(error));
}

}  // namespace

PartialFile::PartialFile(std::filesystem::path path, const HubFile& file)
    : path_(std::move(path)), expected_(file.size), digest_(file.digest_kind(), file.size) {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file_ < 0) fail_file(path_);
  take_prefix();
}

PartialFile::~PartialFile() {
  ::close(file_);
}

void PartialFile::take_prefix() {
  struct stat status {};
  if (::fstat(file_, &status) != 0) fail_file(path_);
  if (static_cast<std::uint64_t>(status.st_size) > expected_) return restart();
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  while (size_ < static_cast<std::uint64_t>(status.st_size)) {
    const ssize_t got = ::pread(file_, buffer.data(), buffer.size(), static_cast<off_t>(size_));
    if (got < 0 && errno != EINTR) fail_file(path_);
    if (got == 0) break;
    if (got < 0) continue;
    digest_.add(std::span(buffer).first(static_cast<std::size_t>(got)));
    size_ += static_cast<std::uint64_t>(got);
  }
}

void PartialFile::restart() {
  if (::ftruncate(file_, 0) != 0) fail_file(path_);
  size_ = 0;
  digest_.restart();
}

void PartialFile::append(std::span<const std::byte> bytes) {
  QUENCH_CHECK_AS(ErrorCode::corrupt, bytes.size() <= expected_ - size_,
                  "{}: the server sends more than the {} bytes that the hub lists", path_.string(), expected_);
  digest_.add(bytes);
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_file(path_);
    size_ += static_cast<std::uint64_t>(put);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void PartialFile::sync() {
  if (::fsync(file_) != 0) fail_file(path_);
}

FileLock::FileLock(const std::filesystem::path& path, const StopPoll& stop, std::string_view what) {
  constexpr auto kPause = std::chrono::milliseconds(100);
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file_ < 0) fail_file(path);
  for (bool told = false; ::flock(file_, LOCK_EX | LOCK_NB) != 0;) {
    if (errno != EWOULDBLOCK && errno != EINTR) return;  // no locks here
    if (!told) QUENCH_LOG_INFO("waiting for another process that downloads {}", what);
    told = true;
    if (const int reason = stop ? stop() : 0; reason != 0) {
      ::close(file_);
      throw Stopped(reason);
    }
    std::this_thread::sleep_for(kPause);
  }
}

FileLock::~FileLock() {
  ::close(file_);
}

}  // namespace quench::hub
