#pragma once
// Files that a verb is asked to write: judged before it begins its work, so that nothing is lost and no work is wasted.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace quench {

struct OutputFileRules {
  std::string option = "--output";  // how messages call it
  bool overwrite = false;           // any file may be replaced that is not an input
  bool stream = true;               // a character device or a pipe may be written to
  // Files that the verb reads, or would read if they existed. Never written, whatever `overwrite` says.
  std::vector<std::filesystem::path> inputs{};
  // Whether an existing file is an earlier output of the verb, which may be replaced; none: no file may.
  std::function<bool(const std::filesystem::path&)> is_own{};
};

// Throws bad_config unless a file may be written at `path`: nothing stands there and its folder exists; or an empty
// file, an earlier output, or any file with `overwrite`.
void require_output_file(const std::filesystem::path& path, const OutputFileRules& rules);

// The first bytes of a file; empty where it cannot be read.
[[nodiscard]] std::string read_beginning(const std::filesystem::path& path, std::size_t bytes);

}  // namespace quench
