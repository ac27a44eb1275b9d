#pragma once
// The inside of Trainer: what a run holds from its start to its end. trainer.cpp begins, saves and ends it,
// trainer_steps.cpp takes its steps.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/system/signals.h"
#include "data/formats/file_checks.h"
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
#include "train/run/run_progress.h"
#include "train/run/sample_texts.h"
#include "train/run/trainer.h"
#include "train/setup/data_setup.h"
#include "train/setup/model_setup.h"
#include "train/setup/run_identity.h"
#include "train/setup/run_model.h"
#include "train/step/train_step.h"

namespace quench {

struct Trainer::Run {
  Run(RunConfig c, Device d, int console);
  TrainResult train();

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
  void log_step(const GradientReport& report, const StepVerdict& verdict, double lr);
  void evaluate(const SignalHandlers& signals);
  void save();
  // Saves the state after the last good step of a run that ends by this error; throws one error that says both where
  // that fails.
  void save_before_end(const std::exception& error);
  void report_saves(const std::vector<SaveReport>& saved);
  // Which implementation served ops that have several: a fallback that costs speed must not go unseen.
  static void report_kernels();

  RunConfig config;
  Device device;
  Json environment;
  // Before the choice of a recipe: that reads the folder's checkpoints, and may measure for a minute.
  RunLock lock;
  std::unique_ptr<RunLock> checkpoint_lock;  // of the checkpoint folder, unless that is the run folder
  RunLog log;
  RecipeChoice choice;  // of recipe.name "auto"
  ModelSetup setup;
  FileChecks checks;
  DataSetup data;
  RunModel run_model;
  SampleTexts samples;  // of evaluation.prompts
  RunIdentity identity;
  std::int64_t steps = 0;
  LossGuard guard;
  HealthLog health;
  TrainingFlops flops;  // of a token, under the recipe that applies now
  RunProgress progress;
  std::optional<std::int64_t> resumed_step;
  std::int64_t saved_step = -1;
  bool beside_earlier_run = false;  // the checkpoints in the folder are another run's until this one saves
  bool whole = false;               // weights and optimizer state are those of progress.step
  bool in_tail = false;             // recipe.high_precision_tail
  std::string base;                 // hash of the weights under adapters; empty: all of the model is trained
  std::unique_ptr<nn::Optimizer> optimizer;
  std::unique_ptr<TrainStep> step;
  std::unique_ptr<CheckpointWriter> writer;
  std::unique_ptr<BatchLoader> loader;
  std::unique_ptr<LrSchedule> schedule;
  std::unique_ptr<StepTimer> timer;
  MetricsLog metrics;
  TrainResult result;
};

}  // namespace quench
