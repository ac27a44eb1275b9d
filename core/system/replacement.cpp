#include "core/system/replacement.h"

#include <unistd.h>

#include <system_error>

#include "core/system/check.h"
#include "core/system/log.h"
#include "core/system/temporary.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

fs::path make_replaced_folder(const fs::path& folder) {
  fs::path replaced;
  for (int number = 1; replaced.empty() || !fs::create_directory(replaced); ++number)
    replaced = folder / fmt::format("replaced-{}", number);
  return replaced;
}

}  // namespace

FileReplacement::FileReplacement(const fs::path& path, std::uint64_t planned_bytes)
    : target_(file_to_replace(path)), temporary_(temporary_name(target_)), file_(temporary_, planned_bytes) {}

FileReplacement::~FileReplacement() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void FileReplacement::commit() {
  file_.close();
  rename_path(temporary_, target_);
  temporary_.clear();
  sync_directory(folder_of(target_));
}

Moves::~Moves() {
  for (auto it = done_.rbegin(); it != done_.rend(); ++it) {
    std::error_code error;
    fs::rename(it->second, it->first, error);
    if (error)
      QUENCH_LOG_ERROR("{} cannot be moved back to {}: {}", it->second.string(), it->first.string(), error.message());
  }
}

void Moves::move(const fs::path& from, const fs::path& to) {
  std::error_code ignored;
  QUENCH_CHECK_AS(ErrorCode::io, !fs::exists(fs::symlink_status(to, ignored)), "cannot move {} to {}: it exists",
                  from.string(), to.string());
  rename_path(from, to);
  done_.emplace_back(from, to);
}

fs::path exchange_files(const fs::path& fresh, const fs::path& folder, const std::vector<std::string>& arriving,
                        const std::vector<std::string>& leaving) {
  const fs::path replaced = leaving.empty() ? fs::path() : make_replaced_folder(folder);
  try {
    Moves moves;
    for (const std::string& name : leaving) moves.move(folder / name, replaced / name);
    if (!leaving.empty()) sync_directory(replaced);
    for (const std::string& name : arriving) {
      if (name == arriving.back()) sync_directory(folder);
      moves.move(fresh / name, folder / name);
    }
    sync_directory(folder);
    moves.keep();
  } catch (...) {
    std::error_code ignored;
    fs::remove(replaced, ignored);  // empty
    throw;
  }
  return replaced;
}

bool remove_replaced(const fs::path& replaced, const std::vector<std::string>& names) {
  if (replaced.empty()) return true;
  std::error_code ignored;
  for (const std::string& name : names) fs::remove(replaced / name, ignored);
  return fs::remove(replaced, ignored);
}

}  // namespace quench
