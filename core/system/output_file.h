#pragma once
// Validation of output files before a command starts its work.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace quench {

struct OutputFileRules {
  std::string option = "--output";  // name in messages
  bool overwrite = false;           // any existing file except inputs may be replaced
  bool stream = true;               // character devices and pipes are allowed
  // Files that the command reads or may read; never overwritten.
  std::vector<std::filesystem::path> inputs{};
  // True for an earlier output, which may be replaced; empty: none.
  std::function<bool(const std::filesystem::path&)> is_own{};
};

// Throws bad_config unless `path` is writable: absent in an existing folder, an empty file, an earlier output, or any
// file with `overwrite`.
void require_output_file(const std::filesystem::path& path, const OutputFileRules& rules);

// First bytes of a file; empty if unreadable.
[[nodiscard]] std::string read_beginning(const std::filesystem::path& path, std::size_t bytes);

}  // namespace quench
