#pragma once
// Append-only log file. Each append is one write(2) that completes before the call returns, so that a killed process
// loses no record. A failed append is rolled back; no partial record remains.

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace quench {

class AppendFile {
 public:
  // Opens `path` for appending; creates it and its folders. Throws no_space, not_found or io naming the path.
  explicit AppendFile(const std::filesystem::path& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Atomic: all of `bytes` or none. Throws no_space or io.
  void append(std::string_view bytes);
  // Syncs and closes the file; later appends throw.
  void close();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  [[noreturn]] void fail(std::string_view action, int error) const;

  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace quench
