#pragma once
// Append-only log. Each append is one completed write(2): a killed process loses no record. A failed append is rolled
// back.

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace quench {

class AppendFile {
 public:
  // Creates file and folders. Throws no_space, not_found or io naming the path.
  explicit AppendFile(const std::filesystem::path& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // All of `bytes` or none. Throws no_space or io.
  void append(std::string_view bytes);
  // Syncs; later appends throw.
  void close();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  [[noreturn]] void fail(std::string_view action, int error) const;

  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace quench
