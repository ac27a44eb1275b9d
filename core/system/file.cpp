#include "core/system/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/system/check.h"
#include "core/system/missing_path.h"
#include "core/system/replacement.h"
#include "core/system/temporary.h"

namespace quench {
namespace {

constexpr std::string_view kOpen = "open";

[[noreturn]] void fail_io(std::string_view action, const std::filesystem::path& path, int error) {
  const ErrorCode code = is_no_space(error) ? ErrorCode::no_space
                         : error == ENOENT  ? ErrorCode::not_found
                                            : ErrorCode::io;
  const std::string advice =
      error == EFBIG ? "; the file system or the limit on file sizes (`ulimit -f`) allows no larger file" : "";
  QUENCH_FAIL(code, "cannot {} {}: {}{}", action, path.string(), errno_text(error),
              action == kOpen && error == ENOENT ? missing_path_text(path) : advice);
}

template <class Call>
int retry_interrupted(const Call& call) {
  int result = 0;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

class Descriptor {
 public:
  explicit Descriptor(int file) : file_(file) {}
  ~Descriptor() {
    if (file_ >= 0) ::close(file_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return file_; }

 private:
  int file_;
};

void write_stream(const std::filesystem::path& path, std::string_view bytes) {
  const Descriptor stream(retry_interrupted([&] { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY); }));
  if (stream.get() < 0) fail_io(kOpen, path, errno);
  while (!bytes.empty()) {
    const ssize_t done = ::write(stream.get(), bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_io("write", path, errno);
    bytes.remove_prefix(static_cast<std::size_t>(done));
  }
}

}  // namespace

std::filesystem::path folder_of(const std::filesystem::path& path) {
  const auto parent = path.parent_path();
  return parent.empty() ? std::filesystem::path(".") : parent;
}

bool is_no_space(int number) noexcept {
  return number == ENOSPC || number == EDQUOT || number == EFBIG;
}

std::string errno_text(int number) {
  return std::generic_category().message(number);
}

OutputFile::OutputFile(const std::filesystem::path& path, std::uint64_t planned_bytes)
    : path_(path), planned_(planned_bytes) {
  file_ = retry_interrupted([&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644); });
  if (file_ < 0) fail_io("create", path, errno);
  if (is_temporary_name(path.filename().string())) lock_temporary(file_);
  if (planned_bytes == 0) return;
  int error = 0;
  do {
    error = ::posix_fallocate(file_, 0, static_cast<off_t>(planned_bytes));
  } while (error == EINTR);
  if (error == 0 || error == EOPNOTSUPP || error == EINVAL) return;
  ::close(file_);
  file_ = -1;
  ::unlink(path.c_str());
  if (is_no_space(error))
    QUENCH_FAIL(ErrorCode::no_space,
                "cannot reserve {} bytes for {}: {} ({} bytes are free); free some space or choose another folder",
                planned_bytes, path.string(), errno_text(error), free_disk_bytes(path));
  fail_io("reserve space for", path, error);
}

OutputFile::~OutputFile() {
  if (file_ >= 0) ::close(file_);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t piece = std::min<std::size_t>(bytes.size(), std::size_t{64} << 20);
    const ssize_t done = ::write(file_, bytes.data(), piece);
    if (done < 0) {
      if (errno == EINTR) continue;
      const int error = errno;
      if (error == ENOSPC || error == EDQUOT)
        QUENCH_FAIL(ErrorCode::no_space, "cannot write {}: {} after {} bytes, {} more were due ({} bytes are free)",
                    path_.string(), errno_text(error), written_, bytes.size(), free_disk_bytes(path_));
      fail_io("write", path_, error);
    }
    written_ += static_cast<std::uint64_t>(done);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

void OutputFile::close() {
  const auto size = static_cast<off_t>(written_);
  if (planned_ > written_ && retry_interrupted([&] { return ::ftruncate(file_, size); }) != 0)
    fail_io("resize", path_, errno);
  if (retry_interrupted([&] { return ::fsync(file_); }) != 0) fail_io("sync", path_, errno);
  const int result = ::close(file_);
  const int error = errno;
  file_ = -1;
  if (result != 0 && error != EINTR) fail_io("close", path_, error);  // Linux closes on EINTR too
}

void sync_directory(const std::filesystem::path& folder) {
  const Descriptor directory(
      retry_interrupted([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (directory.get() < 0) fail_io("open folder", folder, errno);
  // Some network file systems cannot sync folders.
  if (retry_interrupted([&] { return ::fsync(directory.get()); }) != 0 && errno != EINVAL && errno != ENOTSUP)
    fail_io("sync folder", folder, errno);
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_io("rename " + from.string() + " to", to, errno);
}

void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to) {
  rename_path(from, to);
  sync_directory(folder_of(to));
}

std::filesystem::path file_to_replace(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  const bool link = std::filesystem::is_symlink(std::filesystem::symlink_status(path, error));
  if (!std::filesystem::exists(status)) {
    QUENCH_CHECK_AS(ErrorCode::io, !link, "cannot write {}: it is a link to nothing", path.string());
    return path;
  }
  QUENCH_CHECK_AS(ErrorCode::io, std::filesystem::is_regular_file(status), "cannot write {}: it is {}, not a file",
                  path.string(), std::filesystem::is_directory(status) ? "a folder" : "a device, pipe or socket");
  return link ? std::filesystem::canonical(path) : path;
}

void write_file_atomically(const std::filesystem::path& path, std::string_view bytes) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_character_file(status) || std::filesystem::is_fifo(status)) return write_stream(path, bytes);
  FileReplacement file(path, bytes.size());
  file.write(bytes);
  file.commit();
}

std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  // FIFOs do not block and are rejected below.
  const Descriptor file(retry_interrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  if (file.get() < 0) fail_io(kOpen, path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail_io("inspect", path, errno);
  QUENCH_CHECK_AS(ErrorCode::io, S_ISREG(info.st_mode), "{} is not a regular file", path.string());
  QUENCH_CHECK_AS(ErrorCode::corrupt, static_cast<std::uint64_t>(info.st_size) <= max_bytes,
                  "{} has {} bytes; at most {} are accepted here", path.string(), info.st_size, max_bytes);
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("read", path, errno);
    QUENCH_CHECK_AS(ErrorCode::io, got > 0, "{} became shorter while it was read", path.string());
    done += static_cast<std::size_t>(got);
  }
  return text;
}

std::uint64_t free_disk_bytes(const std::filesystem::path& path) {
  struct statvfs info {};
  std::filesystem::path probe = path;
  while (::statvfs(probe.c_str(), &info) != 0) {
    const auto parent = folder_of(probe);
    if (parent == probe || probe == ".") return 0;
    probe = parent;
  }
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

}  // namespace quench
