#include "train/metrics/tensorboard_sink.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace quench {
namespace {

// Markdown code block by indentation: no content can end it.
std::string preformatted(std::string_view text) {
  std::string block = "    ";
  for (const char c : text) {
    block += c;
    if (c == '\n') block += "    ";
  }
  return block;
}

}  // namespace

TensorBoardSink::TensorBoardSink(const std::filesystem::path& folder, std::optional<std::int64_t> resume_step,
                                 double unix_time, std::string_view config)
    : file_(folder / event_file_name(unix_time), unix_time), name_(file_.path().string()) {
  if (resume_step) file_.restart(*resume_step + 1, unix_time);
  if (!config.empty()) file_.text(resume_step.value_or(0), unix_time, "config", preformatted(config));
}

void TensorBoardSink::step(const StepMetrics& metrics) {
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  std::vector<ScalarSummary> values = {
      {"loss_metrics/global_avg_loss", metrics.loss},
      {"grad_norm", metrics.grad_norm},
      {"lr", metrics.lr},
      {"throughput(tps)", metrics.tokens_per_second / static_cast<double>(metrics.devices)},
      {"time_metrics/end_to_end(s)", metrics.step_seconds},
      {"time_metrics/data_loading(s)", metrics.step_seconds * metrics.data_share},
      {"time_metrics/data_loading(%)", metrics.data_share * 100},
      {"n_tokens_seen", static_cast<double>(metrics.tokens_seen)},
      {"skipped_steps", static_cast<double>(metrics.skipped_steps)},
      {"float8_flops(%)", metrics.float8_share * 100},
  };
  for (const auto& [name, value] : metrics.objective) values.push_back({name, value});
  if (metrics.communication_share) values.push_back({"communication(%)", *metrics.communication_share * 100});
  if (metrics.bubble) values.push_back({"bubble(%)", *metrics.bubble * 100});
  if (metrics.tflops) values.push_back({"tflops", *metrics.tflops});
  if (metrics.mfu) values.push_back({"mfu(%)", *metrics.mfu * 100});
  if (metrics.sol_fraction) {
    values.push_back({"sol_fraction(%)", *metrics.sol_fraction * 100});
    values.push_back({"light_share(%)", *metrics.sol_fraction * 100});  // former name, for one release
  }
  const auto memory = [&](std::string_view gib, std::string_view share, std::uint64_t bytes) {
    if (bytes == 0) return;
    values.push_back({gib, static_cast<double>(bytes) / kGiB});
    if (metrics.memory_capacity_bytes > 0)
      values.push_back({share, static_cast<double>(bytes) / static_cast<double>(metrics.memory_capacity_bytes) * 100});
  };
  memory("memory/max_active(GiB)", "memory/max_active(%)", metrics.memory_bytes);
  memory("memory/max_reserved(GiB)", "memory/max_reserved(%)", metrics.memory_reserved_bytes);
  file_.scalars(metrics.step, metrics.unix_time, values);
}

void TensorBoardSink::evaluation(const EvaluationMetrics& metrics) {
  const std::string group = metrics.name == kValidation ? "validation_metrics" : metrics.name;
  std::vector<std::string> tags;
  for (const auto& [name, value] : metrics.values) tags.push_back(group + "/" + name);
  std::vector<ScalarSummary> values;
  for (std::size_t i = 0; i < tags.size(); ++i) values.push_back({tags[i], metrics.values[i].second});
  file_.scalars(metrics.step, metrics.unix_time, values);
}

void TensorBoardSink::health(const HealthMetrics& metrics) {
  std::vector<std::pair<std::string, double>> all;
  const auto ratio = [&](std::string tag, double decibels) {
    if (!std::isinf(decibels)) all.emplace_back(std::move(tag), decibels);
  };
  ratio("health/worst_sqnr(dB)", metrics.worst_sqnr());
  all.emplace_back("health/most_saturated(%)", metrics.most_saturated() * 100);
  all.emplace_back("health/most_underflow(%)", metrics.most_underflow() * 100);
  for (const recipes::OperandHealth& health : metrics.operands) {
    const std::string prefix = fmt::format("health/{}/{}/", health.layer, to_string(health.operand));
    all.emplace_back(prefix + "amax", health.error.most);
    ratio(prefix + "sqnr(dB)", health.error.sqnr());
    all.emplace_back(prefix + "saturated(%)", health.saturated_share() * 100);
    all.emplace_back(prefix + "underflow(%)", health.underflow_share() * 100);
  }
  std::vector<ScalarSummary> values;
  for (const auto& [tag, value] : all) values.push_back({tag, value});
  file_.scalars(metrics.step, metrics.unix_time, values);
}

void TensorBoardSink::sample(const SampleRecord& sample) {
  file_.text(sample.step, sample.unix_time, "samples", preformatted(sample.prompt + sample.text));
}

}  // namespace quench
