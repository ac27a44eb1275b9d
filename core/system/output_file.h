#pragma once
// Checks of output files before a command's work.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace quench {

struct OutputFileRules {
  std::string option = "--output";  // for messages
  bool overwrite = false;           // replaces any file except inputs
  bool stream = true;               // allows character devices and pipes
  // Never overwritten.
  std::vector<std::filesystem::path> inputs{};
  // Earlier output, which may be replaced; empty: none.
  std::function<bool(const std::filesystem::path&)> is_own{};
};

// Throws bad_config unless `path` is absent in an existing folder, empty, an earlier output, or `overwrite` is set.
void require_output_file(const std::filesystem::path& path, const OutputFileRules& rules);

// Empty if unreadable.
[[nodiscard]] std::string read_beginning(const std::filesystem::path& path, std::size_t bytes);

}  // namespace quench
