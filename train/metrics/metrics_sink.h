#pragma once
// A destination of training metrics: the console, a JSON Lines file, a TensorBoard event file.
//
// Sinks throw Error when they cannot write; MetricsLog turns that into one warning and a run without the sink.

#include <cstdint>
#include <optional>
#include <string_view>

#include "train/metrics/expert_metrics.h"
#include "train/metrics/health_metrics.h"
#include "train/metrics/run_event.h"
#include "train/metrics/step_metrics.h"

namespace quench {

// How far the run is, for displays that move with every step.
struct Progress {
  std::int64_t step = 0;  // updates done
  std::int64_t total_steps = 0;
  double loss = 0;
  double tokens_per_second = 0;
  std::optional<double> eta_seconds;
};

class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  // "the console", "runs/x/metrics/metrics.jsonl": how the warning calls the sink.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  virtual void step(const StepMetrics& metrics) = 0;
  virtual void evaluation(const EvaluationMetrics& metrics) = 0;
  virtual void sample(const SampleRecord& sample) = 0;
  virtual void health(const HealthMetrics&) {}
  virtual void experts(const ExpertMetrics&) {}
  virtual void event(const RunEvent&) {}
  virtual void progress(const Progress&) {}
  // The run went back to the state after `step` (a rollback): what was recorded of later steps does not count.
  virtual void rewind(std::int64_t step) = 0;
  // The run is over: whatever is still open is completed.
  virtual void finish() {}
};

}  // namespace quench
