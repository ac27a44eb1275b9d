#pragma once
// Metrics sink: console, JSON Lines, TensorBoard. Throws Error on write failure; MetricsLog then drops it.

#include <cstdint>
#include <optional>
#include <string_view>

#include "train/metrics/expert_metrics.h"
#include "train/metrics/health_metrics.h"
#include "train/metrics/run_event.h"
#include "train/metrics/step_metrics.h"

namespace quench {

// For displays updated every step.
struct Progress {
  std::int64_t step = 0;  // completed
  std::int64_t total_steps = 0;
  double loss = 0;
  double tokens_per_second = 0;
  std::optional<double> eta_seconds;
};

class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  // In warnings: "the console", "runs/x/metrics/metrics.jsonl".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  virtual void step(const StepMetrics& metrics) = 0;
  virtual void evaluation(const EvaluationMetrics& metrics) = 0;
  virtual void sample(const SampleRecord& sample) = 0;
  virtual void health(const HealthMetrics&) {}
  virtual void experts(const ExpertMetrics&) {}
  virtual void event(const RunEvent&) {}
  virtual void progress(const Progress&) {}
  // Rollback: discards records after `step`.
  virtual void rewind(std::int64_t step) = 0;
  // Completes pending output.
  virtual void finish() {}
};

}  // namespace quench
