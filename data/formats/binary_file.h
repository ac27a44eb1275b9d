#pragma once
// Regular file by pread(2), not mmap: a file truncated, overwritten, deleted or replaced in use throws an Error naming
// it, instead of SIGBUS or changed bytes.

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <type_traits>

#include "core/system/check.h"

namespace quench {

class BinaryFile {
 public:
  // Throws not_found, io, or unsupported (folder, pipe, device). On EMFILE the soft descriptor limit is raised to the
  // hard one, once.
  explicit BinaryFile(const std::filesystem::path& path);
  ~BinaryFile();
  BinaryFile(const BinaryFile&) = delete;
  BinaryFile& operator=(const BinaryFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  // At open.
  [[nodiscard]] std::uint64_t size() const noexcept { return static_cast<std::uint64_t>(opened_.st_size); }
  [[nodiscard]] const struct stat& status() const noexcept { return opened_; }

  // Thread-safe. Throws corrupt past the end; io if the file changed since open (size, modification time, unlinked) or
  // the read fails.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

  // Little-endian.
  template <class T>
  [[nodiscard]] T value(std::uint64_t offset) const {
    static_assert(std::is_trivially_copyable_v<T>);
    T result;
    read(offset, std::as_writable_bytes(std::span(&result, 1)));
    return result;
  }

 private:
  void check_unchanged() const;

  std::filesystem::path path_;
  int file_ = -1;
  struct stat opened_ {};
};

}  // namespace quench
