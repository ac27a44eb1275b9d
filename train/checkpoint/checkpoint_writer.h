#pragma once
// Saves training checkpoints, in the background if asked, so that at every moment, whatever fails, the newest complete
// checkpoint can be loaded.
//
// A save goes to <folder>/step-N.tmp-<uuid>: space is reserved before data are written, every file is synced, the
// manifest comes last, then the folder is renamed to step-N and the parent synced. A failed save removes its temporary
// folder and touches nothing else; an input/output error is retried once, into new files.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "distributed/process_group.h"
#include "train/checkpoint/checkpoint_state.h"
#include "train/checkpoint/on_save_error.h"
#include "train/checkpoint/run_lock.h"
#include "train/checkpoint/snapshot.h"

namespace quench {

struct CheckpointOptions {
  int keep_latest = 3;  // newest valid checkpoints to keep; 0 keeps all
  bool async = true;    // write in a background thread
  OnSaveError on_error = OnSaveError::stop;
  std::vector<std::int64_t> pinned;          // steps that are never deleted
  std::optional<std::int64_t> resumed_from;  // never deleted either
  // Processes that save together: a CPU group for nothing else; null: this one alone.
  std::shared_ptr<distributed::ProcessGroup> peers;
};

struct SaveReport {
  std::int64_t step = 0;
  std::filesystem::path path;
  std::uint64_t bytes = 0;   // data files and manifest
  double stall_seconds = 0;  // time save() kept the caller
  double write_seconds = 0;  // time of the writing, in the background when async
};

// Not thread-safe; use it from the training thread. With peers, every process makes the same calls; the first one looks
// after the folder.
class CheckpointWriter {
 public:
  // Prepares `folder` (creates it, proves that files can be written, synced and renamed there, removes what dead
  // processes left). `lock` shows that no other trainer uses the folder: it must lock it or a parent of it, and
  // outlive the writer. Throws bad_config or io naming the folder.
  CheckpointWriter(std::filesystem::path folder, const RunLock& lock, CheckpointOptions options)
      : CheckpointWriter(std::move(folder), &lock, std::move(options)) {}
  // The same; `lock` is null in processes that are not the first, which come when the first one has prepared the
  // folder.
  CheckpointWriter(std::filesystem::path folder, const RunLock* lock, CheckpointOptions options);
  // Waits for the save in flight. An error nobody has seen is logged.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Has the host memory for async saves of these tensors made in the background, so that the first save need not wait
  // for it. Does nothing for others.
  void reserve(std::span<const CheckpointTensor> tensors);

  // Saves step-<state.step>. Async saves return while the tensors are copied: call before_change() before anything
  // changes or frees them. Waits (logged) for an earlier save still in flight. An existing step of the same number is
  // replaced in one rename.
  // Under OnSaveError::stop throws the error of the earlier save (this one is then not begun) or, unless async, its
  // own.
  void save(const CheckpointState& state, std::span<const CheckpointTensor> tensors);

  // Work queued on the current stream from here on may change the tensors of the last save(). Does not keep the host.
  void before_change() { snapshot_.before_change(); }

  // Never waits. Reports of the saves that have ended since the last call; throws the error of a failed one under
  // OnSaveError::stop. Call it once a step. With peers, errors wait for the next save() or finish(), since they would
  // come out of different steps.
  std::vector<SaveReport> poll();

  // Waits for the save in flight, then as poll(). Under keep_going throws one error for all saves that failed since
  // the last finish().
  std::vector<SaveReport> finish();

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  // Host bytes held for snapshots; the most that async saves of these tensors will need is snapshot_bytes(tensors).
  [[nodiscard]] std::int64_t staging_bytes() const noexcept { return snapshot_.capacity(); }

 private:
  using Clock = std::chrono::steady_clock;

  void write(const CheckpointState& state, std::span<const CheckpointTensor> tensors, Clock::time_point called);
  void collect();
  [[nodiscard]] bool first() const noexcept { return options_.peers == nullptr || options_.peers->rank() == 0; }

  std::filesystem::path folder_;
  CheckpointOptions options_;
  Snapshot snapshot_;
  std::thread worker_;
  std::atomic<bool> worker_done_{false};
  std::int64_t step_in_flight_ = 0;
  // Written by the worker before it ends, read after it was joined.
  std::exception_ptr error_;
  std::vector<SaveReport> reports_;
  int saves_ = 0;
  int failures_ = 0;
  ErrorCode first_failure_code_ = ErrorCode::failed;
  std::string first_failure_;
  bool first_failure_relayed_ = false;  // it was another process that could not save
};

}  // namespace quench
