#pragma once
// Metrics to all sinks. A sink that fails (disk full, closed terminal) is dropped with one warning. For the training
// thread of rank 0; an empty log, as on other ranks, drops everything.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/metrics/console_sink.h"
#include "train/metrics/metrics_sink.h"

namespace quench {

struct MetricsLogOptions {
  std::filesystem::path folder;  // .jsonl files; event files in subfolder "tensorboard"
  bool jsonl = true;
  bool tensorboard = true;
  std::optional<ConsoleOptions> console = ConsoleOptions{};
  // Steps completed in the loaded checkpoint; nullopt: new run. Later records are dropped.
  std::optional<std::int64_t> resume_step;
  std::string config;  // resolved, for TensorBoard
};

class MetricsLog {
 public:
  MetricsLog() = default;
  explicit MetricsLog(const MetricsLogOptions& options);

  void add(std::unique_ptr<MetricsSink> sink) { sinks_.push_back(std::move(sink)); }
  [[nodiscard]] std::size_t size() const noexcept { return sinks_.size(); }

  // A unix_time of 0 is set to now. Sink failures do not throw.
  void step(StepMetrics metrics);
  void evaluation(EvaluationMetrics metrics);
  void sample(SampleRecord sample);
  void health(HealthMetrics metrics);
  void experts(ExpertMetrics metrics);
  void event(RunEvent event);
  void progress(const Progress& progress);
  // Rollback to the checkpoint of `step`.
  void rewind(std::int64_t step);
  // At the end, also after an error.
  void finish();

 private:
  template <class Call>
  void each(Call&& call);
  template <class Open>
  void open(std::string_view name, Open&& open_sink);

  std::vector<std::unique_ptr<MetricsSink>> sinks_;
};

}  // namespace quench
