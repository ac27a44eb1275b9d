#include "train/metrics/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "core/system/check.h"
#include "core/system/file.h"

namespace quench {

AppendFile::AppendFile(const std::filesystem::path& path) : path_(path) {
  if (path.has_parent_path()) {
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    QUENCH_CHECK_AS(ErrorCode::io, !error, "cannot create folder {}: {}", path.parent_path().string(), error.message());
  }
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) fail("open", errno);
}

AppendFile::~AppendFile() {
  if (file_ >= 0) ::close(file_);
}

void AppendFile::append(std::string_view bytes) {
  QUENCH_CHECK(file_ >= 0, "{} is closed", path_.string());
  struct stat info {};
  if (::fstat(file_, &info) != 0) fail("inspect", errno);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t wrote = ::write(file_, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      const int error = errno;
      // Best effort: readers skip a partial last record.
      if (done > 0) [[maybe_unused]]
        const int result = ::ftruncate(file_, info.st_size);
      fail("write", error);
    }
    done += static_cast<std::size_t>(wrote);
  }
}

void AppendFile::close() {
  if (file_ < 0) return;
  const int synced = ::fsync(file_) == 0 || errno == EINVAL ? 0 : errno;
  const int closed = ::close(file_) == 0 ? 0 : errno;
  file_ = -1;
  if (synced != 0) fail("sync", synced);
  if (closed != 0) fail("close", closed);
}

void AppendFile::fail(std::string_view action, int error) const {
  const ErrorCode code = is_no_space(error) ? ErrorCode::no_space
                         : error == ENOENT  ? ErrorCode::not_found
                                            : ErrorCode::io;
  QUENCH_FAIL(code, "cannot {} {}: {}", action, path_.string(), errno_text(error));
}

}  // namespace quench
