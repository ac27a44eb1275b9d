#pragma once
// Checkpoint writer, optionally asynchronous. The newest complete checkpoint stays loadable through any failure.
//
// A save goes to <folder>/step-N.tmp-<uuid>: space is reserved, every file is synced, the manifest written last, the
// folder renamed to step-N and the parent synced. A failed save only removes its temporary folder; an I/O error is
// retried once with new files.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "distributed/process_group.h"
#include "train/checkpoint/checkpoint_state.h"
#include "train/checkpoint/on_save_error.h"
#include "train/checkpoint/run_line.h"
#include "train/checkpoint/run_lock.h"
#include "train/checkpoint/snapshot.h"

namespace quench {

// Retention and error handling of a CheckpointWriter.
struct CheckpointOptions {
  int keep_latest = 3;  // newest valid checkpoints; 0: all
  bool async = true;    // in a background thread
  OnSaveError on_error = OnSaveError::stop;
  std::vector<std::int64_t> pinned{};          // steps exempt from deletion
  std::optional<std::int64_t> resumed_from{};  // in the folder; exempt from deletion
  std::optional<std::int64_t> kept{};          // first kept()
  // Steps exempt from the deletion after a save, asked each time by the saving thread; null: none.
  std::function<std::vector<std::int64_t>()> in_use{};
  // CPU group of the ranks that save together; null: single process.
  std::shared_ptr<distributed::ProcessGroup> peers{};
};

// Completed save.
struct SaveReport {
  std::int64_t step = 0;
  std::filesystem::path path;
  std::uint64_t bytes = 0;   // data files and manifest
  double stall_seconds = 0;  // caller blocked in save()
  double write_seconds = 0;  // in the background when async
};

// For the training thread. With peers, all ranks make the same calls; rank 0 manages the folder.
class CheckpointWriter {
 public:
  // Creates `folder`, tests write, sync and rename, removes leftovers of dead processes. `lock` must cover the folder
  // or a parent and outlive the writer. Throws bad_config or io naming the folder.
  CheckpointWriter(std::filesystem::path folder, const RunLock& lock, CheckpointOptions options)
      : CheckpointWriter(std::move(folder), &lock, std::move(options)) {}
  // `lock` is null on ranks other than 0, which construct after rank 0.
  CheckpointWriter(std::filesystem::path folder, const RunLock* lock, CheckpointOptions options);
  // Waits for the save in flight. Logs an unreported error.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Allocates pinned memory for async saves in the background. No-op for CPU tensors.
  void reserve(std::span<const CheckpointTensor> tensors);

  // Saves step-<state.step>. Async: returns while tensors are being copied; call before_change() before modifying or
  // freeing them. Waits (logged) for a save in flight. A step-N that this writer saved is replaced in one rename, one
  // of an abandoned line kept under another name. Under
  // OnSaveError::stop throws the previous save's error (without starting this one) or, if synchronous, its own.
  void save(const CheckpointState& state, std::span<const CheckpointTensor> tensors);

  // Step exempt from deletion in place of the last one, from the next save on with which its checkpoint exists;
  // nullopt: none.
  void keep(std::optional<std::int64_t> step) noexcept { next_kept_ = step; }
  // The step that is exempt now: an earlier one where the save of the last failed. Rank 0.
  [[nodiscard]] std::optional<std::int64_t> kept() const noexcept {
    const std::int64_t step = kept_on_disk_;
    return step >= 0 ? std::optional(step) : std::nullopt;
  }

  // Checkpoints of the run's line by descending step: those that this writer saved, some perhaps deleted since. Rank 0;
  // after wait().
  [[nodiscard]] std::vector<std::filesystem::path> saved() const;

  // After wait(); rank 0.
  [[nodiscard]] const RunLine& line() const noexcept { return line_; }

  // The run continues from `step`: later checkpoints are abandoned, and kept. After wait().
  void go_back(std::int64_t step) {
    line_.go_back(step);
    if (kept_on_disk_ > step) kept_on_disk_ = -1;
  }

  // Orders later work on the current stream after the copies of the last save().
  void before_change() { snapshot_.before_change(); }

  // Non-blocking. Saves completed since the last call; throws a failed save's error under OnSaveError::stop.
  std::vector<SaveReport> poll();

  // Waits for the save in flight. Saves completed since the last call; an error stays for the next call of save(),
  // poll() or finish().
  std::vector<SaveReport> wait();

  // Waits for the save in flight, then as poll(). Under OnSaveError::keep_training throws one error for all saves
  // failed since the last finish().
  std::vector<SaveReport> finish();

  // Deletes what only CheckpointOptions::in_use has kept since the last save. After finish().
  void delete_unused();

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  // Host bytes of snapshots; at most snapshot_bytes(tensors) for async saves.
  [[nodiscard]] std::int64_t staging_bytes() const noexcept { return snapshot_.capacity(); }

 private:
  using Clock = std::chrono::steady_clock;

  void write(const CheckpointState& state, std::span<const CheckpointTensor> tensors, Clock::time_point called);
  // step-<step> is whole and of the run's line, with step-<saved> as its last checkpoint.
  [[nodiscard]] bool is_in_line(std::int64_t step, std::int64_t saved) const;
  void apply_policy(std::int64_t saved) const;
  void collect();
  [[nodiscard]] bool first() const noexcept { return options_.peers == nullptr || options_.peers->rank() == 0; }

  std::filesystem::path folder_;
  CheckpointOptions options_;
  Snapshot snapshot_;
  RunLine line_;  // rank 0; changed by the save in flight
  std::thread worker_;
  std::atomic<bool> worker_done_{false};
  std::int64_t step_in_flight_ = 0;
  std::optional<std::int64_t> next_kept_;
  std::optional<std::int64_t> kept_;            // kept step of the save in flight
  std::atomic<std::int64_t> kept_on_disk_{-1};  // negative: none
  // Written by the worker thread, read after join.
  std::exception_ptr error_;
  std::vector<SaveReport> reports_;
  int saves_ = 0;
  int failures_ = 0;
  ErrorCode first_failure_code_ = ErrorCode::failed;
  std::string first_failure_;
  bool first_failure_relayed_ = false;  // from another rank
};

}  // namespace quench
