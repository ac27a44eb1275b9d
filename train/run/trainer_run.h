#pragma once
// Trainer::Run: a session, its record, saver and export, and the loop over steps. trainer.cpp: start and end;
// trainer_steps.cpp: steps and evaluations.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/system/signals.h"
#include "data/formats/validation_cache.h"
#include "data/sampling/loader.h"
#include "nn/optim/lr_schedule.h"
#include "train/metrics/health_log.h"
#include "train/metrics/step_timer.h"
#include "train/plan/training_flops.h"
#include "train/record/run_record.h"
#include "train/run/expert_watch.h"
#include "train/run/run_export.h"
#include "train/run/run_saver.h"
#include "train/run/sample_texts.h"
#include "train/run/start_times.h"
#include "train/run/trainer.h"
#include "train/session/data_setup.h"
#include "train/session/run_session.h"

namespace quench {

// Opened data, and what identifies them.
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
  [[nodiscard]] ResolvedConfig choose_recipe() const;
  [[nodiscard]] RunInputs open_inputs();
  // Base weights, sharding, optimizer, objective and step.
  void make_step();
  // Steps of the whole run, and their rates, from `progress`.
  void plan_steps();
  void open_loader();
  // Run files, reports and metrics on rank 0; then checkpoints and data.
  void begin(SignalHandlers* signals);
  // All steps done, or early stopping.
  [[nodiscard]] bool is_over() const { return progress.step >= steps || record.best().exhausted(); }
  // A step with the evaluation and the save that are due; false, without a step, if the run is over or asked to stop.
  bool advance(SignalHandlers* signals);
  // Last checkpoint, export and summary. `stop_signal`: signal that has stopped the run, or 0.
  TrainResult end(int stop_signal);

  // Since the last call, equal on all ranks.
  struct Requests {
    int stop_signal = 0;
    bool save = false;
  };
  [[nodiscard]] Requests agreed_requests(SignalHandlers* signals) const;
  std::vector<Batch> next_step_batches();
  // False after a rollback, with the checkpoint's counters. Throws nonfinite on the guard's stop.
  bool run_step();
  bool handle_verdict(const StepVerdict& verdict);
  void go_back(const std::string& reason);
  // In the step of these batches.
  std::string first_nonfinite(const std::vector<Batch>& batches);
  // Recipe or high precision for the next step; a rollback may reverse a switch.
  void follow_recipe();
  // For a successful step.
  [[nodiscard]] bool log_due(std::int64_t step_number) const;
  void log_step(const GradientReport& report, const StepVerdict& verdict, double lr,
                const std::optional<double>& expert_imbalance);
  // Texts of a logged step.
  void log_sampled_texts();
  [[nodiscard]] StepMetrics step_metrics(const GradientReport& report, const StepVerdict& verdict, double lr);
  // Over the steps since the last call.
  void measure_ranks(StepMetrics& metrics);
  // True if the evaluation is the best.
  bool evaluate(SignalHandlers* signals);
  // Rank 0: summary and follow-up commands.
  void report_end(int stop_signal) const;
  [[nodiscard]] RunEnd summary(int stop_signal) const;

  StartTimes start;
  std::shared_ptr<const distributed::Ranks> ranks;  // not null
  RunConfig config;  // as written, with a batch that the data fill: stored, compared on resume
  Device device;
  RunRecord record;  // before the recipe choice, which reads checkpoints and may measure for a minute
  std::unique_ptr<RunSession> session;
  RunInputs inputs;
  RunModel run_model;
  RunExport exporter;
  SampleTexts samples;
  std::int64_t steps = 0;
  LossGuard guard;
  HealthLog health;
  TrainingFlops flops;  // per token, current recipe
  RunProgress progress;
  RunSaver saver;
  std::unique_ptr<ExpertWatch> experts;
  std::unique_ptr<BatchLoader> loader;
  std::unique_ptr<LrSchedule> schedule;
  std::unique_ptr<StepTimer> timer;
  Requests asked;                               // for the next step
  std::int64_t measured_step = 0;               // step of the last measure_ranks
  std::int64_t first_tokens = 0;                // tokens_seen at this start
  std::chrono::steady_clock::time_point begun;  // first batch
};

}  // namespace quench
