#include "core/system/missing_path.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "core/system/nearest_name.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostNames = 10'000;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end && names.size() < kMostNames;
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::string nearest_path(const fs::path& path) {
  std::error_code ignored;
  fs::path found;
  auto part = path.begin();
  for (; part != path.end() && fs::exists(found / *part, ignored); ++part) found /= *part;
  if (part == path.end() || part->empty()) return {};
  const std::string near = nearest_name(part->string(), names_in(found.empty() ? fs::path(".") : found));
  if (near.empty()) return {};
  fs::path other = found / near;
  for (++part; part != path.end(); ++part) other /= *part;
  return fs::exists(other, ignored) ? other.string() : std::string();
}

std::string working_directory_text(const fs::path& path) {
  std::error_code error;
  if (path.empty() || path.is_absolute()) return {};
  const fs::path here = fs::current_path(error);
  return error ? std::string() : fmt::format(" in the working directory {}", here.string());
}

std::string missing_path_text(const fs::path& path) {
  const std::string near = nearest_path(path);
  return working_directory_text(path) + (near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

}  // namespace quench
