#pragma once
// Training run from config to final checkpoint.

#include <memory>
#include <optional>
#include <string>

#include "core/device/device.h"
#include "core/json/json.h"
#include "distributed/ranks.h"
#include "train/config/run_config.h"
#include "train/metrics/metrics_sink.h"
#include "train/record/run_model.h"
#include "train/record/run_progress.h"
#include "train/run/export_validation.h"
#include "train/session/run_session.h"

namespace quench {

// End of a run.
struct TrainResult {
  std::int64_t step = 0;  // completed
  double loss = 0;
  int stop_signal = 0;     // SIGTERM or SIGINT that ended the run (state saved), else 0
  std::string checkpoint;  // newest; empty: none
  std::string exported;    // folder; empty: none
  std::optional<ExportValidation> export_validation = {};
};

// {"step", "loss", "checkpoint", "exported"}, and "export_validation" {"trained_loss", "exported_loss", "method"} if it
// was measured.
[[nodiscard]] Json to_json(const TrainResult& result);

class Trainer {
 public:
  // Console text goes to descriptor `console` (negative: none; also none below log level info, log.h) and log.txt. Rank
  // 0 writes the run's files, all `ranks` (not null) their checkpoint shards.
  Trainer(RunConfig config, Device device, int console = 1,
          std::shared_ptr<const distributed::Ranks> ranks = distributed::Ranks::single());
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // To the last step, a stop signal or an error. Throws bad_config and unsupported before any write, locked for a run
  // folder in use, nonfinite by the loss guard. Completed checkpoints stay intact.
  //
  // With `handle_signals`, handlers of core/system/signals.h are installed until it returns, one run of a process at a
  // time; a second stop signal ends the process. Without, the process keeps its handlers.
  TrainResult run(bool handle_signals = true);

  // A further destination of the run's metrics, on rank 0. Before begin() or run().
  void add_metrics(std::unique_ptr<MetricsSink> sink);

  // The parts of run(), for a loop of one's own without signal handlers: begin() once, then step(), then end() once.
  // Errors and ranks as in run().
  void begin();
  // One optimizer step, with the evaluation and the save that are due. False, without a step: the run is over.
  bool step();
  // The last checkpoint and, if the run is over, its export; then the run's folders are unlocked. Before the run is
  // over, it is as after a stop signal: the run resumes.
  TrainResult end();
  // Model, optimizer and objective.
  [[nodiscard]] RunSession& session() noexcept;
  // Completed steps and tokens, and the last loss.
  [[nodiscard]] const RunProgress& progress() const noexcept;
  // Steps of the whole run.
  [[nodiscard]] std::int64_t planned_steps() const noexcept;
  // Tokenizer, token ids and architecture.
  [[nodiscard]] const RunModel& run_model() const noexcept;
  // An evaluation of one's own, to all metrics of the run. Rank 0, after begin().
  void log_evaluation(EvaluationMetrics metrics);

 private:
  struct Run;
  std::unique_ptr<Run> run_;
};

}  // namespace quench
