#include "train/checkpoint/retention.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <system_error>

#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/output_folder.h"
#include "core/system/temporary.h"
#include "train/checkpoint/checkpoint_list.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

template <class Predicate>
std::vector<fs::path> entries_where(const fs::path& folder, const Predicate& predicate) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error))
    if (predicate(*entries)) found.push_back(entries->path());
  if (error) QUENCH_LOG_WARN("cannot list the folder {}: {}", folder.string(), error.message());
  return found;
}

void remove_or_warn(const fs::path& path) noexcept {
  bool removed = false;
  try {
    const fs::file_type type = fs::symlink_status(path).type();
    removed = type == fs::file_type::directory ? remove_own(path, is_save_file)
                                               : type == fs::file_type::regular && fs::remove(path);
  } catch (const std::exception&) {
    removed = false;
  }
  if (!removed) QUENCH_LOG_WARN("cannot remove {} with all that is in it; will be tried again", path.string());
}

bool is_uuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : std::isxdigit(static_cast<unsigned char>(text[i])) == 0) return false;
  }
  return true;
}

// Temporary of a name that `is_whole`.
template <class Predicate>
bool is_temporary_of(std::string_view name, const Predicate& is_whole) {
  return is_temporary_name(name) && is_whole(name.substr(0, name.rfind(kTemporaryMark)));
}

bool is_step(std::string_view name) {
  return parse_step_name(name).has_value();
}

// A checkpoint in deletion.
bool is_trash(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  return name.starts_with(kTrashPrefix) && is_temporary_of(std::string_view(name).substr(kTrashPrefix.size()), is_step);
}

// By the exact forms that a save writes: those of users are theirs.
bool is_leftover(const fs::directory_entry& entry) {
  const std::string text = entry.path().filename().string();
  std::string_view name = text;
  if (is_trash(entry) || is_temporary_of(name, [](std::string_view whole) { return whole == "LATEST"; })) return true;
  if (name.starts_with(kProbePrefix)) {
    name.remove_prefix(kProbePrefix.size());
    return is_uuid(name.substr(0, name.ends_with(kProbeSuffix) ? name.size() - kProbeSuffix.size() : name.size()));
  }
  const auto mark = name.find(kTemporaryMark);
  if (mark == std::string_view::npos || !is_step(name.substr(0, mark))) return false;
  name.remove_prefix(mark + kTemporaryMark.size());
  return is_uuid(name.substr(0, name.ends_with(kReplacedSuffix) ? name.size() - kReplacedSuffix.size() : name.size()));
}

std::set<fs::path> link_targets(const fs::path& folder) {
  std::set<fs::path> targets;
  const auto is_link = [](const fs::directory_entry& entry) {
    std::error_code error;
    return entry.is_symlink(error);
  };
  for (const fs::path& link : entries_where(folder, is_link)) {
    std::error_code error;
    const fs::path target = fs::canonical(link, error);
    if (!error) targets.insert(target);
  }
  return targets;
}

// Without exempt ones.
std::vector<CheckpointInfo> expired(const fs::path& folder, const RetentionPolicy& policy) {
  std::vector<CheckpointInfo> candidates;
  for (CheckpointInfo& info : list_checkpoints(folder).checkpoints)
    if (info.valid && !info.superseded) candidates.push_back(std::move(info));
  const auto keep = static_cast<std::size_t>(policy.keep_latest);
  if (candidates.size() <= keep) return {};
  if (keep == 1) {
    const VerifyReport report = verify_checkpoint(candidates.front().path);
    QUENCH_CHECK_AS(ErrorCode::corrupt, report.ok(), "the newest checkpoint does not verify, nothing is deleted: {}",
                    report.faults.front());
  }
  candidates.erase(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(keep));
  const std::set<fs::path> targets = link_targets(folder);
  std::erase_if(candidates, [&](const CheckpointInfo& info) {
    std::error_code error;
    return info.pinned || info.symlink || targets.contains(fs::canonical(info.path, error)) || error ||
           std::find(policy.keep_steps.begin(), policy.keep_steps.end(), info.step) != policy.keep_steps.end();
  });
  return candidates;
}

// After an interrupted save.
void restore_replaced(const fs::path& folder) {
  for (const CheckpointInfo& info : list_checkpoints(folder).checkpoints) {
    if (!parse_replaced_name(info.path.filename().string())) continue;
    rename_durably(info.path, folder / step_name(info.step));
    QUENCH_LOG_WARN("{}: an interrupted save had moved it away; it is {} again", info.path.string(),
                    step_name(info.step));
  }
}

}  // namespace

void apply_retention(const fs::path& folder, const RetentionPolicy& policy) {
  if (policy.keep_latest == 0) return;
  try {
    bool renamed = false;
    for (const CheckpointInfo& info : expired(folder, policy)) {
      const fs::path trash = temporary_name(folder / fmt::format("{}{}", kTrashPrefix, step_name(info.step)));
      std::error_code error;
      fs::rename(info.path, trash, error);
      if (error)
        QUENCH_LOG_WARN("cannot delete the old checkpoint {}: {}; will be tried again after the next save",
                        info.path.string(), error.message());
      renamed |= !error;
    }
    // Removals durable before the rename would leave a partial step-N after a power loss.
    if (renamed) sync_directory(folder);
  } catch (const std::exception& error) {
    QUENCH_LOG_WARN("old checkpoints in {} are not deleted: {}", folder.string(), error.what());
    return;
  }
  for (const fs::path& path : entries_where(folder, is_trash)) remove_or_warn(path);
}

void set_aside_checkpoints(const fs::path& folder) {
  const auto checkpoints = entries_where(folder, [](const fs::directory_entry& entry) {
    return parse_step_name(entry.path().filename().string()).has_value();
  });
  if (checkpoints.empty()) return;
  fs::path earlier;
  for (int number = 1; earlier.empty() || !fs::create_directory(earlier); ++number)
    earlier = folder / fmt::format("{}{}", kEarlierPrefix, number);
  for (const fs::path& path : checkpoints) rename_durably(path, earlier / path.filename());
  sync_directory(folder);
  QUENCH_LOG_WARN("this run did not resume from this folder: its {} checkpoints of another run are now in {}",
                  checkpoints.size(), earlier.string());
}

void remove_leftovers(const fs::path& folder) {
  restore_replaced(folder);
  for (const fs::path& path : entries_where(folder, is_leftover)) {
    QUENCH_LOG_INFO("removing {}, left by an interrupted save", path.string());
    remove_or_warn(path);
  }
}

}  // namespace quench
