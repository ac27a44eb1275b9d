#pragma once
// Hints of messages about paths that do not exist.

#include <filesystem>
#include <string>

namespace quench {

// The path with the nearest existing name (nearest_name.h) in place of the first that does not exist, if it exists
// then; else empty.
[[nodiscard]] std::string nearest_path(const std::filesystem::path& path);

// " in the working directory /home/a/project" for a relative path, else empty.
[[nodiscard]] std::string working_directory_text(const std::filesystem::path& path);

// Both: " in the working directory ...; did you mean ...?".
[[nodiscard]] std::string missing_path_text(const std::filesystem::path& path);

}  // namespace quench
