#include "train/remote/remote_checkpoints.h"

#include <algorithm>
#include <utility>

#include "core/system/check.h"
#include "core/system/key_error.h"
#include "core/system/log.h"
#include "train/checkpoint/checkpoint_list.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

// Not superseded; -1: none.
std::int64_t newest_local(const fs::path& folder) {
  for (const CheckpointInfo& info : list_checkpoints(folder).checkpoints)
    if (info.valid && !info.superseded) return info.step;
  return -1;
}

bool is_in(const fs::path& path, const fs::path& folder) {
  std::error_code absent;
  return fs::equivalent(fs::absolute(path).lexically_normal().parent_path(), folder, absent);
}

bool is_valid(const fs::path& folder, std::int64_t step) {
  std::error_code ignored;
  const fs::path path = folder / step_name(step);
  return fs::is_directory(path, ignored) && inspect_checkpoint(step, path).valid;
}

}  // namespace

void require_remote_settings(const CheckpointSection& section) {
  (void)s3::parse_s3_url(section.remote);
  (void)s3::S3Settings::from_environment();
}

void require_remote(const CheckpointSection& section, const distributed::Ranks& ranks) {
  if (section.remote.empty()) return;
  distributed::together(ranks, "checkpoint.remote", [&] {
    try {
      require_remote_settings(section);
      if (ranks.is_first()) RemoteStore(section.remote, {}).probe();
    } catch (const Error& error) {
      throw KeyError(error.code(), "checkpoint.remote", error.what());
    }
  });
}

void RemoteCheckpoints::fetch() const {
  using Mode = ResumeFrom::Mode;
  const ResumeFrom& from = section_.resume;
  const fs::path folder = section_.folder;
  if (from.mode == Mode::step && is_valid(folder, from.step)) return;
  RemoteStore store(section_.remote, {});
  std::vector<RemoteCheckpoint> checkpoints = store.list();
  std::erase_if(checkpoints, [](const RemoteCheckpoint& checkpoint) { return !checkpoint.has_manifest; });
  if (from.mode == Mode::step) {
    const auto found = std::ranges::find(checkpoints, from.step, &RemoteCheckpoint::step);
    if (found != checkpoints.end()) store.fetch(*found, folder);
    return;
  }
  std::erase_if(checkpoints, [](const RemoteCheckpoint& checkpoint) { return !checkpoint.is_usable(); });
  if (from.mode == Mode::never || from.mode == Mode::path) {
    QUENCH_CHECK_KEY(ErrorCode::bad_config, "checkpoint.remote",
                     checkpoints.empty() || (from.mode == Mode::path && is_in(from.path, folder)),
                     "{} holds checkpoints (the newest: {}), which this run does not continue; name another prefix for "
                     "it, or remove them",
                     store.text(), step_name(checkpoints.front().step));
    return;
  }
  const std::int64_t newest = newest_local(folder);
  for (const RemoteCheckpoint& checkpoint : checkpoints) {
    if (checkpoint.step <= newest) return;
    try {
      return store.fetch(checkpoint, folder);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt) throw;
      QUENCH_LOG_WARN("{} is skipped: {}", store.text(step_name(checkpoint.step)), error.what());
    }
  }
  QUENCH_CHECK_KEY(ErrorCode::corrupt, "checkpoint.remote", checkpoints.empty() || newest >= 0,
                   "{} holds {} checkpoints, none of which can be loaded (see the warnings); repair or remove them, or "
                   "name another prefix to start anew",
                   store.text(), checkpoints.size());
}

void RemoteCheckpoints::start() {
  uploader_ = std::make_unique<RemoteUploader>(
      section_.remote,
      UploadOptions{.rank = rank_, .ranks = ranks_, .keep_latest = static_cast<int>(section_.keep_latest)});
}

std::vector<std::int64_t> RemoteCheckpoints::in_use() const {
  const std::optional<std::int64_t> step = uploader_ ? uploader_->in_flight() : std::nullopt;
  return step ? std::vector{*step} : std::vector<std::int64_t>();
}

void RemoteCheckpoints::finish() {
  if (uploader_) uploader_->finish(static_cast<double>(section_.remote_wait));
}

}  // namespace quench
