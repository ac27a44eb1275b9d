#pragma once
// A log file that only grows. Every append is one write(2), handed to the operating system before the call returns, so
// a killed process loses nothing that was logged; an append that fails is taken back, so the file never ends in half a
// record.

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace quench {

class AppendFile {
 public:
  // Opens `path` for appending, creating it and its folders. Throws Error (no_space, not_found or io) naming the path.
  explicit AppendFile(const std::filesystem::path& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // All of `bytes` or none. Throws Error (no_space or io).
  void append(std::string_view bytes);
  // Makes what was appended durable and closes the file; later appends throw.
  void close();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  [[noreturn]] void fail(std::string_view action, int error) const;

  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace quench
