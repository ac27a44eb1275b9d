#pragma once
// Machine-readable metrics: JSON Lines files in one folder.
//
// Every record has all keys of its kind. Unknown, NaN and infinite values are null; "nonfinite" marks the last two.
//   metrics.jsonl      step, total_steps, time, loss, grad_norm, lr, tokens_per_second, devices, tflops, mfu,
//                      float8_share, sol_fraction, light_share (former name, same value), memory_bytes,
//                      memory_share, step_ms, data_share, eta_seconds, tokens_seen, skipped_steps,
//                      nonfinite; expert_imbalance of MoE models; objective {name: number} of training
//                      objectives
//   evaluations.jsonl  step, time, name, values {name: number}, tokens, seconds, nonfinite
//   samples.jsonl      step, time, prompt, text, tokens [ids of the text]
//   health.jsonl       step, time, worst_sqnr_db, most_saturated, most_underflow, nonfinite,
//                      layers {name: {operand: {format, rounding if stochastic, amax, sqnr_db, saturated, underflow,
//                      nonfinite}}} with operands
//                      input, weight, output_gradient; sqnr_db is null if lossless
//   experts.jsonl      step, time, imbalance, balance_loss, z_loss, layers {number: [share of each expert]}; MoE
//                      models only, losses only if trained on
//   events.jsonl       step, time, event ("resume", "rollback", "skip", "spike", "early_stop"), message; only if there
//                      are any
// time: seconds since 1970; shares and mfu: fractions; total_steps: null if unknown.

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
  // resume_step: see JsonLines. Throws when a file cannot be opened.
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
  // Opened at the first record, or if it exists.
  std::optional<JsonLines> experts_;
  std::optional<JsonLines> events_;
};

}  // namespace quench
