#include "train/checkpoint/checkpoint_save.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <functional>
#include <system_error>

#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/replacement.h"
#include "distributed/communication_error.h"
#include "distributed/ranks.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/data_file_part.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

// Version 4, RFC 9562 section 5.4.
std::string make_uuid() {
  std::array<unsigned char, 16> bits{};
  QUENCH_CHECK_AS(ErrorCode::failed, ::getrandom(bits.data(), bits.size(), 0) == static_cast<ssize_t>(bits.size()),
                  "cannot draw random bits: {}", errno_text(errno));
  bits[6] = static_cast<unsigned char>((bits[6] & 0x0F) | 0x40);
  bits[8] = static_cast<unsigned char>((bits[8] & 0x3F) | 0x80);
  std::string text;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", bits[i]);
  }
  return text;
}

[[noreturn]] void fail_errno(const std::string& action, int error) {
  const ErrorCode code = error == ENOSPC || error == EDQUOT ? ErrorCode::no_space : ErrorCode::io;
  QUENCH_FAIL(code, "cannot {}: {}", action, errno_text(error));
}

void make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0755) != 0) fail_errno("create the folder " + path.string(), errno);
}

// Syncs new folders.
void make_folders_durably(const fs::path& path) {
  std::error_code ignored;  // creation reports the reason
  if (path.empty() || fs::exists(path, ignored)) return;
  const fs::path parent = path.parent_path();
  make_folders_durably(parent);
  if (!path.has_filename()) return;  // "a/b/"
  make_folder(path);
  sync_directory(parent.empty() ? "." : parent);
}

void remove_or_warn(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) QUENCH_LOG_WARN("cannot remove {}: {}; the next run will", path.string(), error.message());
}

void check_free_space(const fs::path& folder, std::int64_t step, std::uint64_t bytes) {
  const std::uint64_t needed = bytes + bytes / 20;
  const std::uint64_t available = free_disk_bytes(folder);
  QUENCH_CHECK_AS(ErrorCode::no_space, available >= needed,
                  "the checkpoint of step {} needs {} bytes in {} ({} and a reserve of 5%), {} are free; free some "
                  "space, lower checkpoint.keep_latest or choose another folder",
                  step, needed, folder.string(), bytes, available);
}

// Before publication, so that a later abandoned checkpoint is never the latest.
void mark_superseded(const fs::path& folder, std::int64_t step, const RunLine& line) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const auto other = parse_step_name(entries->path().filename().string());
    std::error_code ignored;
    if (!other || line.keeps(*other, step) || !entries->is_directory(ignored)) continue;
    const fs::path marker = entries->path() / kSupersededMarker;
    if (fs::exists(marker, ignored)) continue;
    try {
      OutputFile file(marker);
      file.write(fmt::format("the run went back before this checkpoint and saved step {}\n", step));
      file.close();
      sync_directory(entries->path());
      QUENCH_LOG_WARN("{}: superseded, since the run continues from an earlier step and now saves step {}",
                      entries->path().string(), step);
    } catch (const Error& failure) {
      QUENCH_LOG_WARN("{}: cannot be marked superseded by step {}: {}", entries->path().string(), step, failure.what());
    }
  }
}

// An existing checkpoint of the run's line is exchanged atomically and its new path returned for removal; others,
// pinned and unloadable ones and links are renamed and kept.
fs::path publish(const fs::path& temporary, const fs::path& target, std::int64_t step, const std::string& uuid,
                 bool in_line) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(target, ignored))) {
    rename_path(temporary, target);
    return {};
  }
  const CheckpointInfo earlier = inspect_checkpoint(step, target);
  const bool superseded = earlier.superseded || !in_line;
  if (earlier.pinned || superseded || earlier.symlink || !earlier.valid) {
    const fs::path kept = target.parent_path() /
                          fmt::format("{}-{}-{}", earlier.pinned ? "pinned" : "kept", target.filename().string(), uuid);
    Moves moves;
    moves.move(target, kept);
    moves.move(temporary, target);
    moves.keep();
    QUENCH_LOG_WARN("{} is saved again; the earlier one is now {}: {}", target.string(), kept.string(),
                    !earlier.fault.empty() ? earlier.fault
                    : earlier.pinned       ? "it is pinned"
                    : superseded           ? "it is superseded"
                                           : "it is a link");
    return {};
  }
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) return temporary;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
    fail_errno("exchange " + temporary.string() + " and " + target.string(), errno);
  // Without atomic exchange (NFS), not resumable between the renames.
  const fs::path replaced = temporary.string() + std::string(kReplacedSuffix);
  Moves moves;
  moves.move(target, replaced);
  moves.move(temporary, target);
  moves.keep();
  return replaced;
}

// Pass-through for a single process.
class Savers {
 public:
  explicit Savers(distributed::ProcessGroup* peers) : peers_(peers) {}

  [[nodiscard]] int rank() const { return peers_ != nullptr ? peers_->rank() : 0; }
  [[nodiscard]] int size() const { return peers_ != nullptr ? peers_->size() : 1; }
  [[nodiscard]] bool first() const { return rank() == 0; }
  [[nodiscard]] std::vector<std::string> exchange(std::string_view mine) const {
    if (peers_ == nullptr) return {std::string(mine)};
    return distributed::exchange_texts(*peers_, mine, "checkpoint");
  }
  // True on all ranks if `mine` is on each. Also after an error, which a lost rank does not replace.
  [[nodiscard]] bool all(bool mine) const {
    if (peers_ == nullptr) return mine;
    try {
      std::array<std::int64_t, 1> others{mine ? 0 : 1};
      distributed::all_reduce_numbers(*peers_, others, distributed::ReduceOp::max, "checkpoint");
      return others[0] == 0;
    } catch (const distributed::CommunicationError&) {
      return false;
    }
  }
  // An error on one rank is raised on all.
  void together(const std::function<void()>& work) const {
    if (peers_ == nullptr) return work();
    distributed::together(*peers_, "checkpoint", work);
  }

 private:
  distributed::ProcessGroup* peers_;
};

Manifest joined_manifest(const Savers& savers, const SaveIdentity& identity, const CheckpointState& state,
                         const DataFilePlan& plan, std::span<const CheckpointTensor> tensors) {
  const std::vector<std::string> parts = savers.exchange(to_text(describe(plan, tensors)));
  Manifest manifest;
  manifest.save_uuid = identity.uuid;
  manifest.world_size = identity.world_size;
  manifest.state = state;
  if (savers.first())
    for (const std::string& part : parts) append_part(manifest, data_file_part(part));
  return manifest;
}

// Rank 0: manifest, then rename; the checkpoint exists from here on.
void complete(const fs::path& folder, const fs::path& temporary, const Manifest& manifest, RunLine& line,
              bool& committed) {
  const std::int64_t step = manifest.state.step;
  const fs::path target = folder / step_name(step);
  const std::string text = manifest.dump();
  OutputFile file(temporary / Manifest::kFileName, text.size());
  file.write(text);
  file.close();
  sync_directory(temporary);
  mark_superseded(folder, step, line);
  const fs::path replaced = publish(temporary, target, step, manifest.save_uuid, line.keeps(step, step));
  committed = true;
  line.saved.insert(step);
  sync_directory(folder);
  if (!replaced.empty()) remove_or_warn(replaced);
  try {
    write_file_atomically(folder / "LATEST", step_name(step) + "\n");
  } catch (const Error& error) {
    QUENCH_LOG_WARN("{} is saved, but the hint file LATEST is not: {}", target.string(), error.what());
  }
}

SavedCheckpoint save_once(const fs::path& folder, const CheckpointState& state,
                          std::span<const CheckpointTensor> tensors, const Savers& savers, RunLine& line,
                          bool& committed) {
  const std::string uuid = savers.exchange(savers.first() ? make_uuid() : std::string()).front();
  const SaveIdentity identity{uuid, state.step, savers.rank(), savers.size()};
  DataFilePlan plan;
  savers.together([&] { plan = plan_data_file(identity, tensors); });
  const Manifest planned = joined_manifest(savers, identity, state, plan, tensors);
  std::uint64_t bytes = 0;
  const fs::path temporary = folder / fmt::format("{}.tmp-{}", step_name(state.step), uuid);
  savers.together([&] {
    if (!savers.first()) return;
    // Hashes have fixed width: the manifest's size and rules are known before writing.
    bytes = planned.dump().size();
    for (const DataFileRecord& record : planned.files) bytes += record.size;
    make_folders_durably(folder);
    check_free_space(folder, state.step, bytes);
    make_folder(temporary);
  });
  try {
    savers.together([&] { write_data_file(temporary, plan, tensors); });
    const Manifest manifest = joined_manifest(savers, identity, state, plan, tensors);
    savers.together([&] {
      if (savers.first()) complete(folder, temporary, manifest, line, committed);
    });
    committed = true;
  } catch (...) {
    if (savers.first() && !committed) remove_or_warn(temporary);
    throw;
  }
  return {folder / step_name(state.step), bytes};
}

}  // namespace

SavedCheckpoint save_checkpoint(const fs::path& folder, const CheckpointState& state,
                                std::span<const CheckpointTensor> tensors, distributed::ProcessGroup* peers,
                                RunLine* line) {
  const Savers savers(peers);
  RunLine unknown;
  if (line == nullptr) unknown.saved.insert(state.step);
  RunLine& in = line != nullptr ? *line : unknown;
  bool committed = false;
  try {
    return save_once(folder, state, tensors, savers, in, committed);
  } catch (const distributed::CommunicationError&) {
    throw;
  } catch (const std::exception& failure) {
    // After a failed fsync, another may lose data silently: new files.
    const auto* error = dynamic_cast<const Error*>(&failure);
    const bool can_retry = error != nullptr && error->code() == ErrorCode::io && !committed;
    if (!savers.all(can_retry)) throw;
    QUENCH_LOG_WARN("saving step {} failed and is retried once: {}", state.step, failure.what());
  }
  return save_once(folder, state, tensors, savers, in, committed);
}

void probe_checkpoint_folder(const fs::path& folder) {
  std::error_code ignored;
  QUENCH_CHECK_AS(ErrorCode::bad_config, !fs::exists(folder, ignored) || fs::is_directory(folder, ignored),
                  "checkpoint folder {} is a file; set checkpoint.folder to a folder", folder.string());
  const fs::path probe = folder / fmt::format("{}{}", kProbePrefix, make_uuid());
  const fs::path renamed = probe.string() + std::string(kProbeSuffix);
  try {
    make_folders_durably(folder);
    make_folder(probe);
    OutputFile file(probe / kProbeFile);
    file.write("probe\n");
    file.close();
    sync_directory(probe);
    rename_durably(probe, renamed);
    fs::remove_all(renamed);
  } catch (const std::exception& failure) {
    fs::remove_all(probe, ignored);
    fs::remove_all(renamed, ignored);
    const auto* known = dynamic_cast<const Error*>(&failure);
    QUENCH_FAIL(
        known != nullptr ? known->code() : ErrorCode::io,
        "checkpoint folder {} cannot be used: {}; set checkpoint.folder to a folder that can be written, synced "
        "and renamed in",
        folder.string(), failure.what());
  }
}

}  // namespace quench
