#pragma once
// Durable file output and bounded input. System calls are checked; errors name the path. Writes use write(2), not a
// mapping: a full disk is an error, not a signal.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace quench {

// Sequentially written new file.
class OutputFile {
 public:
  // Creates `path` (fails if it exists). planned_bytes > 0 reserves space: a full disk is reported first (no_space with
  // bytes needed and free). Without fallocate, writes directly.
  explicit OutputFile(const std::filesystem::path& path, std::uint64_t planned_bytes = 0);
  ~OutputFile();  // closes without sync unless close() was called
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  [[nodiscard]] std::uint64_t written() const noexcept { return written_; }
  // Truncates to the written size, fsyncs, closes. Throws no_space or io.
  void close();

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t written_ = 0;
  std::uint64_t planned_ = 0;
};

// Parent folder; "." for a plain name.
[[nodiscard]] std::filesystem::path folder_of(const std::filesystem::path& path);

// fsync of a folder: makes created, renamed and removed entries durable.
void sync_directory(const std::filesystem::path& folder);

// rename(2), then sync of the target's folder.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

// Regular file that a new file at `path` replaces or creates, symbolic links resolved. Throws io for other file types
// and dangling links.
[[nodiscard]] std::filesystem::path file_to_replace(const std::filesystem::path& path);

// Atomic replace: temporary file in the same folder, fsync, rename, fsync of the folder. Symbolic links are kept and
// their target replaced. Character devices and pipes (/dev/null, /dev/stdout) are written directly.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

// Throws not_found, io, or corrupt ("larger than N bytes").
[[nodiscard]] std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// Bytes available to an unprivileged process on the file system of `path`.
[[nodiscard]] std::uint64_t free_disk_bytes(const std::filesystem::path& path);

// "no such file or directory" and the like.
[[nodiscard]] std::string errno_text(int number);
// True for disk full, quota and file size limits.
[[nodiscard]] bool is_no_space(int number) noexcept;

}  // namespace quench
