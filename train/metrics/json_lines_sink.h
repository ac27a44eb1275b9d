#pragma once
// Metrics for programs: metrics.jsonl, evaluations.jsonl, samples.jsonl, health.jsonl, experts.jsonl and events.jsonl
// in one folder.
//
// Every record has every key of its kind. A value that is unknown, NaN or infinite is null; "nonfinite" tells the last
// two from the first.
//   metrics.jsonl      step, total_steps, time, loss, grad_norm, lr, tokens_per_second, devices, tflops, mfu,
//                      float8_share, sol_fraction, light_share (the same number under its former name), memory_bytes,
//                      memory_share, step_ms, data_share, eta_seconds, tokens_seen, skipped_steps,
//                      nonfinite; expert_imbalance of models with experts
//   evaluations.jsonl  step, time, name, values {name: number}, tokens, seconds, nonfinite
//   samples.jsonl      step, time, prompt, text, tokens [ids of the text]
//   health.jsonl       step, time, worst_sqnr_db, most_saturated, most_underflow, nonfinite,
//                      layers {name: {operand: {format, rounding if stochastic, amax, sqnr_db, saturated, underflow,
//                      nonfinite}}} with operands
//                      input, weight, output_gradient; sqnr_db is null too where nothing was lost
//   experts.jsonl      step, time, imbalance, balance_loss, z_loss, layers {number: [share of each expert]}; only of
//                      models with experts, and the losses only where they take part in training
//   events.jsonl       step, time, event ("resume", "rollback", "skip", "spike"), message; only of runs that had any
// time is in seconds since 1970; shares and mfu are fractions; total_steps is null when unknown.

#include <filesystem>
#include <optional>

#include "train/metrics/json_lines.h"
#include "train/metrics/metrics_sink.h"

namespace quench {

[[nodiscard]] Json to_json(const StepMetrics& metrics);
[[nodiscard]] Json to_json(const EvaluationMetrics& metrics);
[[nodiscard]] Json to_json(const SampleRecord& sample);
[[nodiscard]] Json to_json(const HealthMetrics& metrics);
[[nodiscard]] Json to_json(const RunEvent& event);

class JsonLinesSink final : public MetricsSink {
 public:
  // resume_step: see JsonLines. Throws Error when a file cannot be opened.
  JsonLinesSink(const std::filesystem::path& folder, std::optional<std::int64_t> resume_step);

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  void step(const StepMetrics& metrics) override { metrics_.append(to_json(metrics)); }
  void evaluation(const EvaluationMetrics& metrics) override { evaluations_.append(to_json(metrics)); }
  void sample(const SampleRecord& sample) override { samples_.append(to_json(sample)); }
  void health(const HealthMetrics& metrics) override { health_.append(to_json(metrics)); }
  void experts(const ExpertMetrics& metrics) override;
  void event(const RunEvent& event) override;
  void rewind(std::int64_t step) override;
  void finish() override;

 private:
  std::filesystem::path folder_;
  std::optional<std::int64_t> resume_step_;
  std::string name_;
  JsonLines metrics_;
  JsonLines evaluations_;
  JsonLines samples_;
  JsonLines health_;
  // Opened with the first record, or where an earlier start left some.
  std::optional<JsonLines> experts_;
  std::optional<JsonLines> events_;
};

}  // namespace quench
