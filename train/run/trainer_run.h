#pragma once
// Trainer state. trainer.cpp: start, save, end; trainer_resume.cpp: loads; trainer_steps.cpp: steps; trainer_ranks.cpp:
// collective parts.

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/system/signals.h"
#include "data/formats/validation_cache.h"
#include "data/sampling/loader.h"
#include "nn/optim/lr_schedule.h"
#include "train/checkpoint/checkpoint_choice.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/metrics/health_log.h"
#include "train/metrics/metrics_log.h"
#include "train/metrics/run_log.h"
#include "train/metrics/step_timer.h"
#include "train/plan/training_flops.h"
#include "train/probe/auto_recipe.h"
#include "train/record/best_evaluation.h"
#include "train/record/run_identity.h"
#include "train/record/run_model.h"
#include "train/record/run_progress.h"
#include "train/run/end_report.h"
#include "train/run/export_validation.h"
#include "train/run/sample_texts.h"
#include "train/run/start_times.h"
#include "train/run/trainer.h"
#include "train/session/data_setup.h"
#include "train/session/model_setup.h"
#include "train/session/run_objective.h"
#include "train/step/train_step.h"

namespace quench {

// Keys in CheckpointState::extra.
inline constexpr std::string_view kBestKey = "best_evaluation";
inline constexpr std::string_view kValidatedFromKey = "validated_from";
inline constexpr std::string_view kKeptKey = "kept_best";  // its step, where the save of the best failed

struct RunInputs {
  std::unique_ptr<ValidationCache> checks;
  DataSetup data;
  RunIdentity identity;
  std::string smaller_batch;  // warning of fit_batch()
};

struct Trainer::Run {
  Run(RunConfig c, Device d, int console, std::shared_ptr<const distributed::Ranks> r);
  TrainResult train(bool handle_signals);

  // Rank 0.
  [[nodiscard]] bool first() const noexcept { return ranks->is_first(); }
  // To the run log, if this rank has one.
  void log_lines(std::string_view lines) const;
  // An error on one rank is raised on all.
  void on_all_ranks(std::string_view what, const std::function<void()>& work) const;
  // Rank 0 before the others.
  void first_rank_first(std::string_view what, const std::function<void()>& work) const;
  [[nodiscard]] std::unique_ptr<RunLock> lock_run() const;
  // Lock of a checkpoint folder outside the run folder (runs may share it); else null. Also checks the export target.
  [[nodiscard]] std::unique_ptr<RunLock> lock_checkpoints() const;
  // Locks it, unless it is one of the other two, or cannot be written: the metrics then say so.
  void take_metrics_folder();
  [[nodiscard]] RecipeChoice choose_recipe() const;
  // Base weights under adapters, and initial adapter values. Before sharding, while linear layers have the unquantized
  // values.
  void load_base_weights();
  [[nodiscard]] std::unique_ptr<RunObjective> make_run_objective() const;
  [[nodiscard]] RunInputs open_inputs();
  // export.calibration on rank 0; null on others. At the start, so that errors appear before training.
  [[nodiscard]] std::shared_ptr<const CalibrationData> read_calibration() const;
  // Since the last call, equal on all ranks.
  struct Requests {
    int stop_signal = 0;
    bool save = false;
  };
  // Over the steps since the last call.
  void measure_ranks(StepMetrics& metrics);
  [[nodiscard]] Requests agreed_requests(SignalHandlers* signals) const;

  // Steps of the whole run, and their rates, from `progress`.
  void plan_steps();
  void resume_or_fill();
  void load(CheckpointReader& reader);
  // load() on all ranks of the checkpoint that `choose` finds on rank 0 (load_chosen).
  std::filesystem::path load_for_all(Verify verify,
                                     const std::function<std::filesystem::path(const LoadCheckpoint&)>& choose);
  // The best evaluation, unless it is of other validation data, and the step from which the data are these.
  void restore_best(const CheckpointState& state);
  void write_run_files() const;
  // Without the keys of this start, once a checkpoint of it exists (continuing_config()).
  void write_continuing_config() const;
  void open_logs();
  void open_loader();
  std::vector<Batch> next_step_batches();
  // False after a rollback, with the checkpoint's counters. Throws nonfinite on the guard's stop.
  bool run_step();
  bool handle_verdict(const StepVerdict& verdict);
  // In the step of these batches.
  std::string first_nonfinite(const std::vector<Batch>& batches);
  // Recipe or high precision for the next step; a rollback may reverse a switch.
  void follow_recipe();
  // For a successful step.
  [[nodiscard]] bool log_due(std::int64_t step_number) const;
  void log_step(const GradientReport& report, const StepVerdict& verdict, double lr);
  void evaluate(SignalHandlers* signals);
  void save();
  // Tensors of this rank.
  [[nodiscard]] std::vector<CheckpointTensor> tensors_to_save() const;
  // State of the last good step, before the run ends with `error`; if that fails, throws one error with both.
  void save_before_end(const std::exception& error);
  void report_saves(const std::vector<SaveReport>& saved);
  // With checkpoint.keep_best.
  [[nodiscard]] std::optional<std::int64_t> best_step() const;
  // Step of the checkpoint that is kept as the best when the run resumes.
  [[nodiscard]] std::optional<std::int64_t> kept_on_disk() const;
  [[nodiscard]] std::string best_checkpoint() const;  // empty: none
  // Averaged weights in place of the last; training is over.
  void use_averages();
  [[nodiscard]] ValidationOptions validation_options() const;
  // Cross-entropy on the validation data; collective.
  [[nodiscard]] double trained_loss();
  // With `validated_export`: measured, and written only if better than the pass before. Collective.
  ModelFolderReport write_export(const std::string& method, std::shared_ptr<const CalibrationData> data);
  // By export.method; auto: RTN, then GPTQ if the validation loss rises notably. Collective.
  void export_run();
  [[nodiscard]] RunEnd end() const;
  void warn_of_export(const RunEnd& end) const;
  // Logs the implementation of ops that have several, so that slow fallbacks are visible.
  static void report_kernels();

  StartTimes start;
  std::shared_ptr<const distributed::Ranks> ranks;  // not null
  RunConfig config;  // as written, with a batch that the data fill: stored, compared on resume
  Device device;
  Json environment;
  // Rank 0. Before the recipe choice, which reads checkpoints and may measure for a minute.
  std::unique_ptr<RunLock> lock;
  std::unique_ptr<RunLock> checkpoint_lock;  // null: in the run folder
  std::unique_ptr<RunLock> metrics_lock;     // null: one of these, or no metrics
  std::unique_ptr<RunLog> log;
  ResolvedConfig chosen;
  ModelSetup setup;
  RunInputs inputs;
  RunModel run_model;
  std::shared_ptr<const CalibrationData> calibration;  // null: none
  std::optional<ExportValidation> validated_export;    // unset: not measured
  std::vector<EvaluationMetrics> export_evaluations;   // results of export_run(), the kept one last
  SampleTexts samples;
  std::int64_t steps = 0;
  LossGuard guard;
  HealthLog health;
  TrainingFlops flops;  // per token, current recipe
  RunProgress progress;
  std::optional<std::int64_t> resumed_step;
  std::filesystem::path resumed_path;                  // empty: from the beginning
  bool has_saved = false;                              // in this start
  std::int64_t saved_step = -1;                        // step of the last save known to have succeeded
  std::int64_t measured_step = 0;                      // step of the last measure_ranks
  bool sets_earlier_run_aside = false;                 // the next save: the folder has checkpoints of another run
  bool resumed_elsewhere = false;                      // from a checkpoint outside checkpoint.folder
  bool state_is_consistent = false;                    // weights and optimizer state match progress.step
  bool in_tail = false;                                // next step in high precision
  std::string base;                                    // base weight hash under adapters; empty: full training
  std::unique_ptr<distributed::ShardedModel> sharded;  // null: single process
  std::unique_ptr<nn::Optimizer> optimizer;
  std::unique_ptr<RunObjective> objective;
  std::unique_ptr<TrainStep> step;
  std::unique_ptr<nn::ExpertLoad> expert_load;
  float bias_speed = 0;  // 0: constant
  std::optional<double> expert_imbalance;
  std::unique_ptr<CheckpointWriter> writer;
  std::unique_ptr<BatchLoader> loader;
  std::unique_ptr<LrSchedule> schedule;
  std::unique_ptr<StepTimer> timer;
  MetricsLog metrics;
  ValidationLosses validation;
  std::int64_t validated_from = 0;  // step after which evaluations are of the current data.validation
  BestEvaluation best;
  std::optional<std::int64_t> kept_best;        // kept step of the checkpoint resumed from: CheckpointOptions::kept
  bool improved = false;                        // the last step's evaluation is the best
  std::int64_t first_tokens = 0;                // tokens_seen at this start
  std::chrono::steady_clock::time_point begun;  // first batch
  TrainResult result;
};

}  // namespace quench
