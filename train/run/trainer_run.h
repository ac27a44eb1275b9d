#pragma once
// Internal state of Trainer. trainer.cpp: start, save, end; trainer_steps.cpp: steps.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/system/signals.h"
#include "data/formats/validation_cache.h"
#include "data/sampling/loader.h"
#include "nn/optim/lr_schedule.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/metrics/health_log.h"
#include "train/metrics/metrics_log.h"
#include "train/metrics/run_log.h"
#include "train/metrics/step_timer.h"
#include "train/plan/training_flops.h"
#include "train/probe/auto_recipe.h"
#include "train/run/end_report.h"
#include "train/run/run_progress.h"
#include "train/run/sample_texts.h"
#include "train/run/trainer.h"
#include "train/setup/data_setup.h"
#include "train/setup/model_setup.h"
#include "train/setup/run_identity.h"
#include "train/setup/run_model.h"
#include "train/step/train_step.h"

namespace quench {

// Inputs of the run besides its config.
struct RunInputs {
  std::unique_ptr<ValidationCache> checks;
  DataSetup data;
  RunIdentity identity;
};

struct Trainer::Run {
  Run(RunConfig c, Device d, int console, std::shared_ptr<const distributed::Ranks> r);
  TrainResult train();

  // True on rank 0, which writes the run's files.
  [[nodiscard]] bool first() const noexcept { return ranks == nullptr || ranks->is_first(); }
  // To the run log, on the rank that has one.
  void say(std::string_view lines) const;
  // Runs `work` on all ranks; an error on one is raised on all.
  void together(std::string_view what, const std::function<void()>& work) const;
  // The same, on rank 0 before the others.
  void first_first(std::string_view what, const std::function<void()>& work) const;
  [[nodiscard]] std::unique_ptr<RunLock> lock_run() const;
  // Lock of a checkpoint folder outside the run folder, which runs may share; else null. Also checks the export target.
  [[nodiscard]] std::unique_ptr<RunLock> lock_checkpoints() const;
  [[nodiscard]] RecipeChoice choose_recipe() const;
  // Fills the base weights under adapters and the adapters' initial values; checkpoints hold adapters only. Call before
  // sharding, while linear layers have the unquantized values.
  void fill_base();
  [[nodiscard]] RunInputs open_inputs();
  // Data of export.calibration on rank 0, which calibrates; null on others. Read at the start so that errors appear
  // before training.
  [[nodiscard]] std::shared_ptr<const CalibrationData> read_calibration() const;
  // Requests since the last call, identical on all ranks: stop signal and save.
  struct Requests {
    int stop_signal = 0;
    bool save = false;
  };
  // Fills per-rank metrics on all ranks, over the steps since the last call.
  void measure_ranks(StepMetrics& metrics);
  [[nodiscard]] Requests agreed_requests(SignalHandlers& signals) const;

  void resume_or_fill();
  void load(CheckpointReader& reader);
  void write_run_files() const;
  void open_logs();
  void open_loader();
  std::vector<Batch> next_step_batches();
  // False after a rollback, with the counters of the checkpoint. Throws nonfinite on the guard's stop.
  bool run_step();
  bool handle_verdict(const StepVerdict& verdict);
  // Name of the first non-finite tensor in the step of these batches.
  std::string first_nonfinite(const std::vector<Batch>& batches);
  // Applies the recipe or high precision for the next step; a rollback may reverse a switch.
  void follow_recipe();
  // True if a successful step is logged.
  [[nodiscard]] bool log_due(std::int64_t step_number) const;
  void log_step(const GradientReport& report, const StepVerdict& verdict, double lr);
  void evaluate(SignalHandlers& signals);
  void save();
  // This rank's checkpoint tensors.
  [[nodiscard]] std::vector<CheckpointTensor> tensors_to_save() const;
  // Saves the state of the last good step before the run ends with `error`; if that fails, throws one error with both.
  void save_before_end(const std::exception& error);
  void report_saves(const std::vector<SaveReport>& saved);
  [[nodiscard]] std::string summary() const;
  // Logs the selected implementation of ops that have several, so that slow fallbacks are visible.
  static void report_kernels();

  std::shared_ptr<const distributed::Ranks> ranks;  // null: single process
  RunConfig config;                                 // as written: stored with the run, compared on resume
  Device device;
  Json environment;
  // Rank 0. Taken before the recipe choice, which reads checkpoints and may measure for a minute.
  std::unique_ptr<RunLock> lock;
  std::unique_ptr<RunLock> checkpoint_lock;  // checkpoint folder, unless equal to the run folder
  std::unique_ptr<RunLog> log;
  ResolvedConfig chosen;
  ModelSetup setup;
  RunInputs inputs;
  RunModel run_model;
  std::shared_ptr<const CalibrationData> calibration;  // null: none
  SampleTexts samples;
  std::int64_t steps = 0;
  LossGuard guard;
  HealthLog health;
  TrainingFlops flops;  // per token, under the current recipe
  RunProgress progress;
  std::optional<std::int64_t> resumed_step;
  std::int64_t saved_step = -1;
  std::int64_t measured_step = 0;                      // of measure_ranks
  bool beside_earlier_run = false;                     // folder has checkpoints of another run until this one saves
  bool whole = false;                                  // weights and optimizer state match progress.step
  bool in_tail = false;                                // the next step runs in high precision
  std::string base;                                    // base weight hash under adapters; empty: full training
  std::unique_ptr<distributed::ShardedModel> sharded;  // null: single process
  std::unique_ptr<nn::Optimizer> optimizer;
  std::unique_ptr<TrainStep> step;
  std::unique_ptr<nn::ExpertLoad> expert_load;
  float bias_speed = 0;  // expert bias update rate; 0: constant
  std::optional<double> expert_imbalance;
  std::unique_ptr<CheckpointWriter> writer;
  std::unique_ptr<BatchLoader> loader;
  std::unique_ptr<LrSchedule> schedule;
  std::unique_ptr<StepTimer> timer;
  MetricsLog metrics;
  ValidationLosses validation;
  std::int64_t first_tokens = 0;                // tokens_seen at this start
  std::chrono::steady_clock::time_point begun;  // time of the first batch
  TrainResult result;
};

}  // namespace quench
