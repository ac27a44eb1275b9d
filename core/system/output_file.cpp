#include "core/system/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/output_folder.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

// Also by path: an input may not exist yet.
bool is_same(const fs::path& path, const fs::path& input) {
  std::error_code absent;
  return fs::equivalent(path, input, absent) || resolved_path(path) == resolved_path(input);
}

}  // namespace

void require_output_file(const fs::path& path, const OutputFileRules& rules) {
  const auto require = [&](bool condition, std::string_view reason) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, condition, "{} {}: {}", rules.option, path.string(), reason);
  };
  require(!path.empty(), "a file name is missing");
  for (const fs::path& input : rules.inputs)
    require(input.empty() || !is_same(path, input), "that is what the verb reads; name another file");
  // Check for new and replaced files, which are written next to their target first.
  const auto require_writable_folder = [&](const fs::path& target) {
    const fs::path folder = fs::absolute(target).parent_path();
    const bool writable = ::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0;
    require(writable, fmt::format("the folder {} cannot be written to: {}", folder.string(), errno_text(errno)));
  };
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  require(!fs::is_directory(status), "that is a folder; name a file");
  if (!fs::exists(status)) {
    require(!fs::is_symlink(fs::symlink_status(path, ignored)), "that is a link to nothing");
    const fs::path folder = fs::absolute(path).parent_path();
    require(fs::is_directory(folder, ignored), fmt::format("there is no folder {}", folder.string()));
    return require_writable_folder(path);
  }
  if (!fs::is_regular_file(status)) {
    const bool stream = fs::is_character_file(status) || fs::is_fifo(status);
    return require(stream && rules.stream, "that is a device, pipe or socket; name a file");
  }
  if (rules.overwrite || fs::file_size(path, ignored) == 0 || (rules.is_own && rules.is_own(path)))
    return require_writable_folder(resolved_path(path));
  require(false, "it exists and is no earlier output of this verb; name another file, or replace it with --overwrite");
}

std::string read_beginning(const fs::path& path, std::size_t bytes) {
  std::ifstream file(path, std::ios::binary);
  std::string text(bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace quench
