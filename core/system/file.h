#pragma once
// Durable file output and bounded file input. Every return value of the operating system is checked; errors name the
// path. Writes go through write(2), never through a mapping, so that a full disk is an error and not a signal.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace quench {

// A new file, written front to back.
class OutputFile {
 public:
  // Creates `path` (fails if it exists) and, when planned_bytes > 0, reserves that space first so that a full disk
  // is reported (no_space, with the bytes needed and free) before anything is written. File systems without
  // fallocate are written to directly.
  explicit OutputFile(const std::filesystem::path& path, std::uint64_t planned_bytes = 0);
  ~OutputFile();  // closes without syncing if close() was not reached
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  [[nodiscard]] std::uint64_t written() const noexcept { return written_; }
  // Cuts the file to what was written, fsyncs and closes it. Throws no_space or io.
  void close();

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t written_ = 0;
  std::uint64_t planned_ = 0;
};

// The folder that holds the path; "." for a plain name.
[[nodiscard]] std::filesystem::path folder_of(const std::filesystem::path& path);

// fsyncs a folder, making the creation, renaming or removal of its entries durable.
void sync_directory(const std::filesystem::path& folder);

// rename(2) followed by a sync of the target's folder.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

// The regular file that a new one at `path` replaces or becomes: `path`, or what it links to. Throws io for anything
// else that stands there (a folder, a device), and for a link to nothing.
[[nodiscard]] std::filesystem::path file_to_replace(const std::filesystem::path& path);

// Replaces `path` by a file with these bytes: temporary file beside it, fsync, rename, fsync of the folder. A link
// stays, what it leads to is replaced. Character devices and pipes (/dev/null, /dev/stdout) are written to as they are.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

// The whole of a regular file; throws not_found, io, or corrupt ("larger than N bytes").
[[nodiscard]] std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// Bytes that an unprivileged process may still write to the file system that holds `path`.
[[nodiscard]] std::uint64_t free_disk_bytes(const std::filesystem::path& path);

// "no such file or directory" and the like, for an errno value.
[[nodiscard]] std::string errno_text(int number);
// Whether an errno value means that no more bytes may be written: disk full, quota, limit on file sizes.
[[nodiscard]] bool is_no_space(int number) noexcept;

}  // namespace quench
