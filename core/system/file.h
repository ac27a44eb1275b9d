#pragma once
// Durable output and bounded input; errors name the path. write(2), not mmap: a full disk is an error, not a signal.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace quench {

class OutputFile {
 public:
  // Fails if `path` exists. planned_bytes > 0 reserves space (no_space with bytes needed and free); without fallocate,
  // writes directly.
  explicit OutputFile(const std::filesystem::path& path, std::uint64_t planned_bytes = 0);
  ~OutputFile();  // without close(): no sync
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  [[nodiscard]] std::uint64_t written() const noexcept { return written_; }
  // Truncates to the written size, fsyncs. Throws no_space or io.
  void close();

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t written_ = 0;
  std::uint64_t planned_ = 0;
};

// "." for a plain name.
[[nodiscard]] std::filesystem::path folder_of(const std::filesystem::path& path);

// fsync: created, renamed and removed entries are durable.
void sync_directory(const std::filesystem::path& folder);

// Throws not_found, no_space or io.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

// Syncs the target's folder; if that fails, throws after the rename.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

// Regular file to replace or create, links resolved. Throws io for other file types and dangling links.
[[nodiscard]] std::filesystem::path file_to_replace(const std::filesystem::path& path);

// Temporary file, fsync, rename, fsync of the folder. Links are kept, their target replaced. Character devices and
// pipes are written directly.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

// Throws not_found, io, or corrupt ("larger than N bytes").
[[nodiscard]] std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// For an unprivileged process.
[[nodiscard]] std::uint64_t free_disk_bytes(const std::filesystem::path& path);

// "no such file or directory".
[[nodiscard]] std::string errno_text(int number);
// Disk full, quota, file size limit.
[[nodiscard]] bool is_no_space(int number) noexcept;

}  // namespace quench
