#include "data/formats/binary_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <bit>
#include <cerrno>

#include "core/system/file.h"
#include "core/system/missing_path.h"

namespace quench {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

// O_NONBLOCK: no wait on a pipe without a writer.
int open_for_reading(const std::filesystem::path& path) {
  const auto open_once = [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); };
  int file = open_once();
  if (file < 0 && errno == EMFILE) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
      limit.rlim_cur = limit.rlim_max;
      if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) return open_once();
    }
    errno = EMFILE;
  }
  return file;
}

}  // namespace

BinaryFile::BinaryFile(const std::filesystem::path& path) : path_(path), file_(open_for_reading(path)) {
  if (file_ < 0) {
    const int error = errno;
    QUENCH_FAIL(error == ENOENT ? ErrorCode::not_found : ErrorCode::io, "cannot open {}: {}{}", path.string(),
                errno_text(error), error == ENOENT ? missing_path_text(path) : "");
  }
  const bool known = ::fstat(file_, &opened_) == 0;
  const int error = errno;
  if (known && S_ISREG(opened_.st_mode)) return;
  ::close(file_);
  file_ = -1;
  if (!known) QUENCH_FAIL(ErrorCode::io, "cannot examine {}: {}", path.string(), errno_text(error));
  QUENCH_FAIL(ErrorCode::unsupported, "{} is not a regular file", path.string());
}

BinaryFile::~BinaryFile() {
  if (file_ >= 0) ::close(file_);
}

void BinaryFile::check_unchanged() const {
  struct stat now {};
  if (::fstat(file_, &now) != 0) QUENCH_FAIL(ErrorCode::io, "cannot examine {}: {}", path_.string(), errno_text(errno));
  QUENCH_CHECK_AS(ErrorCode::io, now.st_nlink > 0, "{} was deleted or replaced while it was being read",
                  path_.string());
  QUENCH_CHECK_AS(ErrorCode::io, now.st_size == opened_.st_size,
                  "{} changed while it was being read: {} bytes when opened, {} now", path_.string(), opened_.st_size,
                  now.st_size);
  QUENCH_CHECK_AS(ErrorCode::io,
                  now.st_mtim.tv_sec == opened_.st_mtim.tv_sec && now.st_mtim.tv_nsec == opened_.st_mtim.tv_nsec,
                  "{} was written to while it was being read", path_.string());
}

void BinaryFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  QUENCH_CHECK_AS(ErrorCode::corrupt, offset <= size() && out.size() <= size() - offset,
                  "{}: bytes {} to {} lie past the end of the file ({} bytes)", path_.string(), offset,
                  offset + out.size(), size());
  check_unchanged();
  while (!out.empty()) {
    const ssize_t count = ::pread(file_, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0) {
      if (errno == EINTR) continue;
      QUENCH_FAIL(ErrorCode::io, "cannot read {} at byte {}: {}", path_.string(), offset, errno_text(errno));
    }
    QUENCH_CHECK_AS(ErrorCode::io, count > 0, "{} ended at byte {} while it was being read", path_.string(), offset);
    out = out.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

}  // namespace quench
