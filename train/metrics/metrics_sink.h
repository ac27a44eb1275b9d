#pragma once
// Metrics sink interface: console, JSON Lines, TensorBoard.
//
// Sinks throw Error on write failure; MetricsLog logs one warning and drops the sink.

#include <cstdint>
#include <optional>
#include <string_view>

#include "train/metrics/expert_metrics.h"
#include "train/metrics/health_metrics.h"
#include "train/metrics/run_event.h"
#include "train/metrics/step_metrics.h"

namespace quench {

// Progress of the run, for displays updated every step.
struct Progress {
  std::int64_t step = 0;  // optimizer steps completed
  std::int64_t total_steps = 0;
  double loss = 0;
  double tokens_per_second = 0;
  std::optional<double> eta_seconds;
};

class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  // Sink name in warnings: "the console", "runs/x/metrics/metrics.jsonl".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  virtual void step(const StepMetrics& metrics) = 0;
  virtual void evaluation(const EvaluationMetrics& metrics) = 0;
  virtual void sample(const SampleRecord& sample) = 0;
  virtual void health(const HealthMetrics&) {}
  virtual void experts(const ExpertMetrics&) {}
  virtual void event(const RunEvent&) {}
  virtual void progress(const Progress&) {}
  // Rollback to the state after `step`: discards records of later steps.
  virtual void rewind(std::int64_t step) = 0;
  // End of the run: completes pending output.
  virtual void finish() {}
};

}  // namespace quench
