#pragma once
// RunSaver: checkpoints of a run. It finds the one to resume from, saves by interval, request and best evaluation, and
// goes back to a saved step. All functions are collective unless they say otherwise.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/checkpoint/checkpoint_choice.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/record/run_model.h"
#include "train/record/run_progress.h"
#include "train/record/run_record.h"
#include "train/remote/remote_checkpoints.h"
#include "train/session/run_session.h"
#include "train/step/loss_guard.h"

namespace quench {

// Parts of a run that a checkpoint holds. They outlive the saver.
struct SavedParts {
  // As written, with a batch that the data fill: stored, compared on resume.
  const RunConfig& config;
  const RunIdentity& identity;
  const RunModel& model;
  RunSession& session;
  RunRecord& record;
  RunProgress& progress;
  LossGuard& guard;
};

class RunSaver {
 public:
  explicit RunSaver(const SavedParts& parts) : parts_(parts) {}

  // Values of the checkpoint that checkpoint.resume chooses, or new ones. Throws bad_config, corrupt.
  void resume_or_fill();
  // Creates the checkpoint writer of a run of `steps`; nothing with checkpoint.enable false.
  void open(std::int64_t steps);
  // Values of the newest checkpoint of this line of the run, all of whose tensors are valid. Throws nonfinite with
  // `reason` if there is none.
  void go_back(const std::string& reason);

  void save();
  // Failed saves do not throw here.
  void wait();
  // The same, without waiting.
  void poll();
  // Saves the last step, unless it is saved, and waits.
  void save_last();
  // The state of the last good step, before the run ends with `error`; if that fails, throws one error with both.
  // `is_shared`: all ranks have thrown at the same place.
  void save_before_end(const std::exception& error, bool is_shared);
  // Waits; throws the error of a failed save.
  void finish();

  // Brackets of a change of weights or optimizer state: until end_update() they match no step, and are not saved. Not
  // collective.
  void begin_update();
  void end_update() noexcept { is_consistent_ = true; }
  // Waits for a save that may still read what the caller changes. Not collective.
  void before_change();
  // After an evaluation: the checkpoint of the best one stays.
  void keep_best();

  [[nodiscard]] bool is_open() const noexcept { return writer_ != nullptr; }
  [[nodiscard]] std::optional<std::int64_t> resumed_step() const noexcept { return resumed_step_; }
  // The first step of this start.
  [[nodiscard]] std::int64_t first_step() const noexcept { return resumed_step_.value_or(0); }
  [[nodiscard]] const std::string& newest() const noexcept { return newest_; }  // path; empty: none
  [[nodiscard]] std::string best_checkpoint() const;                            // path; empty: none

 private:
  // Key in CheckpointState::extra: step of the kept best checkpoint, where the save of a better one failed.
  static constexpr std::string_view kKeptKey = "kept_best";

  void load(CheckpointReader& reader);
  // load() on all ranks of the checkpoint that `choose` finds on rank 0 (load_chosen).
  std::filesystem::path load_for_all(Verify verify,
                                     const std::function<std::filesystem::path(const LoadCheckpoint&)>& choose);
  void report_saves(const std::vector<SaveReport>& saved);
  void open_remote();
  // Exempt from deletion in the storage.
  [[nodiscard]] std::vector<std::int64_t> kept_steps() const;
  // Tensors of this rank. Collective.
  [[nodiscard]] std::vector<CheckpointTensor> tensors_to_save() const;
  // With checkpoint.keep_best.
  [[nodiscard]] std::optional<std::int64_t> best_step() const;
  // Step of the checkpoint that is kept as the best when the run resumes.
  [[nodiscard]] std::optional<std::int64_t> kept_on_disk() const;
  [[nodiscard]] std::filesystem::path folder() const { return parts_.config.checkpoint.folder; }

  SavedParts parts_;
  std::unique_ptr<RemoteCheckpoints> remote_;  // null: none. Before the writer, which asks it
  std::unique_ptr<CheckpointWriter> writer_;
  std::optional<std::int64_t> resumed_step_;
  std::filesystem::path resumed_path_;     // empty: from the beginning
  bool resumed_elsewhere_ = false;         // from a checkpoint outside checkpoint.folder
  bool sets_earlier_run_aside_ = false;    // the next save: the folder has checkpoints of another run
  std::optional<std::int64_t> kept_best_;  // kept step of the checkpoint resumed from: CheckpointOptions::kept
  bool has_saved_ = false;                 // in this start
  std::int64_t saved_step_ = -1;           // step of the last save known to have succeeded
  bool is_consistent_ = false;             // weights and optimizer state match progress.step
  std::string newest_;
};

}  // namespace quench
