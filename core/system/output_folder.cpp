#include "core/system/output_folder.h"

#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/replacement.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNamesShown = 5;

// `each`: relative path, folders with a trailing slash; true to descend.
void walk(const fs::path& folder, const std::string& prefix,
          const std::function<bool(const fs::directory_entry&, const std::string&)>& each) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator it(folder, error); !error && it != fs::directory_iterator(); it.increment(error))
    entries.push_back(*it);
  QUENCH_CHECK_AS(ErrorCode::io, !error, "cannot list the folder {}: {}", folder.string(), error.message());
  for (const fs::directory_entry& entry : entries) {
    const bool is_folder = entry.symlink_status(error).type() == fs::file_type::directory;
    const std::string name = prefix + entry.path().filename().string() + (is_folder ? "/" : "");
    if (each(entry, name) && is_folder) walk(entry.path(), name, each);
  }
}

bool is_own_entry(const fs::directory_entry& entry, const std::string& name, const OwnEntry& is_own) {
  std::error_code error;
  const fs::file_type type = entry.symlink_status(error).type();
  return (type == fs::file_type::regular || type == fs::file_type::directory) && is_own(name);
}

// Without RENAME_EXCHANGE.
fs::path exchange_by_renames(const fs::path& fresh, const fs::path& target) {
  fs::path old;
  for (int number = 1; old.empty() || fs::exists(fs::symlink_status(old)); ++number)
    old = fmt::format("{}.replaced-{}", target.string(), number);
  Moves moves;
  moves.move(target, old);
  moves.move(fresh, target);
  sync_directory(target.parent_path());
  moves.keep();
  return old;
}

// The old folder's new path. Throws with both folders where they were; `fresh` is released if that fails.
fs::path exchange(StagingFolder& fresh, const fs::path& target) {
  const auto swap = [&] {
    return ::renameat2(AT_FDCWD, fresh.path().c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0;
  };
  if (!swap()) {
    const int error = errno;
    QUENCH_CHECK_AS(ErrorCode::io, error == EINVAL || error == ENOSYS || error == ENOTSUP,
                    "cannot exchange {} and {}: {}", fresh.path().string(), target.string(), errno_text(error));
    return exchange_by_renames(fresh.path(), target);
  }
  try {
    sync_directory(target.parent_path());
  } catch (const Error&) {
    if (!swap()) {
      fresh.release();
      QUENCH_LOG_ERROR("{} is the new folder; the old one is {}", target.string(), fresh.path().string());
    }
    throw;
  }
  return fresh.path();
}

}  // namespace

std::vector<std::string> foreign_entries(const fs::path& folder, const OwnEntry& is_own) {
  std::vector<std::string> foreign;
  if (!fs::exists(folder)) return foreign;
  walk(folder, "", [&](const fs::directory_entry& entry, const std::string& name) {
    if (is_temporary_name(entry.path().filename().string())) return false;
    const bool own = is_own_entry(entry, name, is_own);
    if (!own) foreign.push_back(name);
    return own;
  });
  std::sort(foreign.begin(), foreign.end());
  return foreign;
}

bool remove_own(const fs::path& folder, const OwnEntry& is_own) {
  std::vector<fs::path> files, folders{folder};
  walk(folder, "", [&](const fs::directory_entry& entry, const std::string& name) {
    if (!is_own_entry(entry, name, is_own)) return false;
    (name.ends_with('/') ? folders : files).push_back(entry.path());
    return true;
  });
  std::error_code ignored;
  for (const fs::path& file : files) fs::remove(file, ignored);
  for (auto it = folders.rbegin(); it != folders.rend(); ++it) fs::remove(*it, ignored);
  return !fs::exists(folder, ignored);
}

std::string list_names(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kNamesShown);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

void replace_folder(StagingFolder& fresh, const fs::path& target, const OwnEntry& is_own) {
  sync_directory(fresh.path());
  const fs::path place = resolved_path(target);
  if (!fs::exists(place) || fs::is_empty(place)) {
    rename_durably(fresh.path(), place);
    return fresh.release();
  }
  const std::vector<std::string> foreign = foreign_entries(place, is_own);
  QUENCH_CHECK_AS(ErrorCode::io, foreign.empty(), "{} is not replaced: meanwhile it has got {}", place.string(),
                  list_names(foreign));
  const fs::path old = exchange(fresh, place);
  fresh.release();
  if (!remove_own(old, is_own))
    QUENCH_LOG_WARN("{} is replaced; what stood there and could not be deleted is in {}", place.string(), old.string());
}

fs::path resolved_path(const fs::path& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  const fs::path resolved = fs::weakly_canonical(absolute, error);
  fs::path result = error ? absolute.lexically_normal() : resolved;
  return result.has_filename() ? result : result.parent_path();
}

bool is_within(const fs::path& path, const fs::path& folder) {
  const fs::path inner = resolved_path(path), outer = resolved_path(folder);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

}  // namespace quench
