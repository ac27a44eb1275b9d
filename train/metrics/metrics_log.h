#pragma once
// Sends what a run measures to every sink, and keeps a sink's trouble away from training: one that fails, at opening or
// later (disk full, closed terminal), is dropped with one warning.
//
// Used from the training thread of rank 0; an empty log, as on the other ranks, drops everything.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/metrics/console_sink.h"
#include "train/metrics/metrics_sink.h"

namespace quench {

struct MetricsLogOptions {
  std::filesystem::path folder;  // of the .jsonl files; event files go to "tensorboard" below it
  bool jsonl = true;
  bool tensorboard = true;
  std::optional<ConsoleOptions> console = ConsoleOptions{};
  // Updates that the loaded checkpoint had done; nullopt for a new run. What the logs hold of later steps is dropped.
  std::optional<std::int64_t> resume_step;
  std::string config;  // the resolved config's text, for TensorBoard
};

class MetricsLog {
 public:
  MetricsLog() = default;
  explicit MetricsLog(const MetricsLogOptions& options);

  void add(std::unique_ptr<MetricsSink> sink) { sinks_.push_back(std::move(sink)); }
  // Sinks still working.
  [[nodiscard]] std::size_t size() const noexcept { return sinks_.size(); }

  // A unix_time of 0 is replaced by the present. Never throw for a sink's failure.
  void step(StepMetrics metrics);
  void evaluation(EvaluationMetrics metrics);
  void sample(SampleRecord sample);
  void health(HealthMetrics metrics);
  void experts(ExpertMetrics metrics);
  void event(RunEvent event);
  void progress(const Progress& progress);
  // After a rollback to the checkpoint of `step`.
  void rewind(std::int64_t step);
  // Call at the end of the run, also when it ends with an error.
  void finish();

 private:
  template <class Call>
  void each(Call&& call);
  template <class Open>
  void open(std::string_view name, Open&& open_sink);

  std::vector<std::unique_ptr<MetricsSink>> sinks_;
};

}  // namespace quench
