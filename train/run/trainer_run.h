#pragma once
// The inside of Trainer: what a run holds from its start to its end. trainer.cpp begins, saves and ends it,
// trainer_steps.cpp takes its steps.

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

// What the run computes from besides its config.
struct RunInputs {
  std::unique_ptr<ValidationCache> checks;
  DataSetup data;
  RunIdentity identity;
};

struct Trainer::Run {
  Run(RunConfig c, Device d, int console, std::shared_ptr<const distributed::Ranks> r);
  TrainResult train();

  // Whether this process writes what the run writes.
  [[nodiscard]] bool first() const noexcept { return ranks == nullptr || ranks->is_first(); }
  // To the log of the run, if this process keeps it.
  void say(std::string_view lines) const;
  // Runs it on every process; an error of one is an error of all.
  void together(std::string_view what, const std::function<void()>& work) const;
  // The same on rank 0 before the others.
  void first_first(std::string_view what, const std::function<void()>& work) const;
  [[nodiscard]] std::unique_ptr<RunLock> lock_run() const;
  // Two runs may share a checkpoint folder without sharing their run folders; null where that is the run folder. Makes
  // sure that there will be a place for the export too.
  [[nodiscard]] std::unique_ptr<RunLock> lock_checkpoints() const;
  [[nodiscard]] RecipeChoice choose_recipe() const;
  // The model under adapters, and their initial values: checkpoints hold nothing else. Before the model is shared out,
  // while its linear layers have values that their codes can be made of.
  void fill_base();
  [[nodiscard]] RunInputs open_inputs();
  // What export.calibration names, on rank 0, which calibrates; null on the others. At the start: what it lacks must
  // not come out at the end of the run.
  [[nodiscard]] std::shared_ptr<const CalibrationData> read_calibration() const;
  // What the processes were asked since the last call, the same on all of them: a signal to stop, and whether to save.
  struct Requests {
    int stop_signal = 0;
    bool save = false;
  };
  // Fills what is known of each process, on all of them, from the steps since the last call.
  void measure_ranks(StepMetrics& metrics);
  [[nodiscard]] Requests agreed_requests(SignalHandlers& signals) const;

  void resume_or_fill();
  void load(CheckpointReader& reader);
  void write_run_files() const;
  void open_logs();
  void open_loader();
  std::vector<Batch> next_step_batches();
  // False when the step was rolled back: the counters stand at the checkpoint again. Throws nonfinite when the guard
  // says stop.
  bool run_step();
  bool handle_verdict(const StepVerdict& verdict);
  // The name of what was the first not to be finite in the step of these batches.
  std::string first_nonfinite(const std::vector<Batch>& batches);
  // The end of a run may be in high precision; a roll-back may leave it again.
  void follow_recipe();
  // Whether a step that goes well is logged.
  [[nodiscard]] bool log_due(std::int64_t step_number) const;
  void log_step(const GradientReport& report, const StepVerdict& verdict, double lr);
  void evaluate(SignalHandlers& signals);
  void save();
  // This process's part of the state.
  [[nodiscard]] std::vector<CheckpointTensor> tensors_to_save() const;
  // Saves the state after the last good step of a run that ends by this error; throws one error that says both where
  // that fails.
  void save_before_end(const std::exception& error);
  void report_saves(const std::vector<SaveReport>& saved);
  // Figures, results and next commands.
  [[nodiscard]] std::string summary() const;
  // Which implementation served ops that have several: a fallback that costs speed must not go unseen.
  static void report_kernels();

  std::shared_ptr<const distributed::Ranks> ranks;  // null: one process
  RunConfig config;                                 // as written: stored with the run, compared when it resumes
  Device device;
  Json environment;
  // Of the first process. Before the choice of a recipe: that reads the folder's checkpoints, and may measure for a
  // minute.
  std::unique_ptr<RunLock> lock;
  std::unique_ptr<RunLock> checkpoint_lock;  // of the checkpoint folder, unless that is the run folder
  std::unique_ptr<RunLog> log;
  ResolvedConfig chosen;
  ModelSetup setup;
  RunInputs inputs;
  RunModel run_model;
  std::shared_ptr<const CalibrationData> calibration;  // null: none
  SampleTexts samples;                                 // of evaluation.prompts
  std::int64_t steps = 0;
  LossGuard guard;
  HealthLog health;
  TrainingFlops flops;  // of a token, under the recipe that applies now
  RunProgress progress;
  std::optional<std::int64_t> resumed_step;
  std::int64_t saved_step = -1;
  std::int64_t measured_step = 0;   // by measure_ranks
  bool beside_earlier_run = false;  // the checkpoints in the folder are another run's until this one saves
  bool whole = false;               // weights and optimizer state are those of progress.step
  bool in_tail = false;             // the recipe does not apply to the next step
  std::string base;                 // hash of the weights under adapters; empty: all of the model is trained
  std::unique_ptr<distributed::ShardedModel> sharded;  // null: one process
  std::unique_ptr<nn::Optimizer> optimizer;
  std::unique_ptr<TrainStep> step;
  std::unique_ptr<nn::ExpertLoad> expert_load;  // of models with experts
  float bias_speed = 0;                         // of the routers' bias; 0: it stays
  std::optional<double> expert_imbalance;       // of the step that is logged
  std::unique_ptr<CheckpointWriter> writer;
  std::unique_ptr<BatchLoader> loader;
  std::unique_ptr<LrSchedule> schedule;
  std::unique_ptr<StepTimer> timer;
  MetricsLog metrics;
  ValidationLosses validation;
  std::int64_t first_tokens = 0;                // tokens_seen at the beginning of this start
  std::chrono::steady_clock::time_point begun;  // of its first batch
  TrainResult result;
};

}  // namespace quench
