#pragma once
// A regular file read at random offsets with pread(2), never through a mapping: a file that is cut, overwritten,
// deleted or replaced while a job reads it is an Error that names it, where a mapping would raise SIGBUS or serve other
// bytes.

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
  // Throws not_found, io, or unsupported (a folder, a pipe or a device). When the process runs out of descriptors, the
  // soft limit is raised to the hard limit once, so that corpora of thousands of shards open on a stock system.
  explicit BinaryFile(const std::filesystem::path& path);
  ~BinaryFile();
  BinaryFile(const BinaryFile&) = delete;
  BinaryFile& operator=(const BinaryFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  // Bytes, as when the file was opened.
  [[nodiscard]] std::uint64_t size() const noexcept { return static_cast<std::uint64_t>(opened_.st_size); }
  // As the file was opened.
  [[nodiscard]] const struct stat& status() const noexcept { return opened_; }

  // Fills `out` from byte `offset`. Thread-safe. Throws corrupt when the range ends past the file, io when the file is
  // no longer the one that was opened (size, modification time, or no name left) or cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

  // One little-endian value.
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
