#include "train/metrics/json_lines_sink.h"

#include <algorithm>
#include <cmath>

#include "train/metrics/run_files.h"

namespace quench {
namespace {

Json number_or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace

Json to_json(const StepMetrics& metrics) {
  bool nonfinite = metrics.nonfinite;
  for (const double value : {metrics.loss, metrics.grad_norm, metrics.lr}) nonfinite |= !std::isfinite(value);
  const bool has_memory = metrics.memory_bytes > 0;
  Json record = Json::object();
  record.set("step", metrics.step);
  record.set("total_steps", metrics.total_steps > 0 ? Json(metrics.total_steps) : Json());
  record.set("time", metrics.unix_time);
  record.set("loss", metrics.loss);
  record.set("grad_norm", metrics.grad_norm);
  record.set("lr", metrics.lr);
  record.set("tokens_per_second", metrics.tokens_per_second);
  record.set("devices", metrics.devices);
  if (metrics.devices > 1) {
    record.set("tokens_per_second_per_device", metrics.tokens_per_second / static_cast<double>(metrics.devices));
    record.set("communication_share", number_or_null(metrics.communication_share));
    if (metrics.bubble) record.set("bubble", *metrics.bubble);
    Json ranks = Json::array();
    for (const double seconds : metrics.rank_seconds) ranks.push_back(Json(seconds * 1e3));
    record.set("rank_ms", std::move(ranks));
  }
  record.set("tflops", number_or_null(metrics.tflops));
  record.set("mfu", number_or_null(metrics.mfu));
  record.set("float8_share", metrics.float8_share);
  record.set("sol_fraction", number_or_null(metrics.sol_fraction));
  record.set("light_share", number_or_null(metrics.sol_fraction));  // former name, for one release
  record.set("memory_bytes", has_memory ? Json(metrics.memory_bytes) : Json());
  record.set("memory_share", has_memory ? number_or_null(metrics.memory_share()) : Json());
  record.set("memory_reserved_bytes", metrics.memory_reserved_bytes > 0 ? Json(metrics.memory_reserved_bytes) : Json());
  record.set("step_ms", metrics.step_seconds * 1e3);
  record.set("data_share", metrics.data_share);
  record.set("eta_seconds", number_or_null(metrics.eta_seconds));
  record.set("tokens_seen", metrics.tokens_seen);
  record.set("skipped_steps", metrics.skipped_steps);
  if (metrics.expert_imbalance) record.set("expert_imbalance", *metrics.expert_imbalance);
  if (!metrics.objective.empty()) {
    Json values = Json::object();
    for (const auto& [name, value] : metrics.objective) values.set(name, value);
    record.set("objective", std::move(values));
  }
  record.set("nonfinite", nonfinite);
  return record;
}

Json to_json(const EvaluationMetrics& metrics) {
  Json values = Json::object();
  bool nonfinite = false;
  for (const auto& [name, value] : metrics.values) {
    values.set(name, value);
    nonfinite |= !std::isfinite(value);
  }
  Json record = Json::object();
  record.set("step", metrics.step);
  record.set("time", metrics.unix_time);
  record.set("name", metrics.name);
  record.set("values", std::move(values));
  record.set("tokens", metrics.tokens);
  record.set("seconds", metrics.seconds);
  record.set("nonfinite", nonfinite);
  return record;
}

Json to_json(const SampleRecord& sample) {
  Json record = Json::object();
  record.set("step", sample.step);
  record.set("time", sample.unix_time);
  record.set("prompt", sample.prompt);
  record.set("text", sample.text);
  Json tokens = Json::array();
  for (const std::int32_t token : sample.tokens) tokens.push_back(token);
  record.set("tokens", std::move(tokens));
  for (const auto& [name, value] : sample.figures) record.set(name, value);
  return record;
}

Json to_json(const HealthMetrics& metrics) {
  Json::Object layers;
  bool nonfinite = false;
  for (const recipes::OperandHealth& health : metrics.operands) {
    Json values = Json::object();
    values.set("format", to_string(health.format));
    if (health.stochastic) values.set("rounding", "stochastic");
    values.set("amax", health.error.most);
    values.set("sqnr_db", health.error.sqnr());
    values.set("saturated", health.saturated_share());
    values.set("underflow", health.underflow_share());
    values.set("nonfinite", !health.finite());
    nonfinite |= !health.finite();
    if (layers.empty() || layers.back().first != health.layer) layers.emplace_back(health.layer, Json::object());
    layers.back().second.set(to_string(health.operand), std::move(values));
  }
  Json record = Json::object();
  record.set("step", metrics.step);
  record.set("time", metrics.unix_time);
  record.set("worst_sqnr_db", metrics.worst_sqnr());
  record.set("most_saturated", metrics.most_saturated());
  record.set("most_underflow", metrics.most_underflow());
  record.set("nonfinite", nonfinite);
  record.set("layers", Json(std::move(layers)));
  return record;
}

Json to_json(const RunEvent& event) {
  Json record = Json::object();
  record.set("step", event.step);
  record.set("time", event.unix_time);
  record.set("event", event.name);
  record.set("message", event.message);
  return record;
}

JsonLinesSink::JsonLinesSink(const std::filesystem::path& folder, std::optional<std::int64_t> resume_step)
    : folder_(folder),
      resume_step_(resume_step),
      name_((folder / run_files::kMetrics).string()),
      metrics_(folder / run_files::kMetrics, resume_step),
      evaluations_(folder / run_files::kEvaluations, resume_step),
      samples_(folder / run_files::kSamples, resume_step),
      health_(folder / run_files::kHealth, resume_step) {
  if (std::filesystem::exists(folder / run_files::kExperts))
    experts_.emplace(folder / run_files::kExperts, resume_step);
  if (std::filesystem::exists(folder / run_files::kEvents)) events_.emplace(folder / run_files::kEvents, resume_step);
}

void JsonLinesSink::event(const RunEvent& event) {
  if (!events_) events_.emplace(folder_ / run_files::kEvents, resume_step_);
  events_->append(to_json(event));
}

void JsonLinesSink::experts(const ExpertMetrics& metrics) {
  if (!experts_) experts_.emplace(folder_ / run_files::kExperts, resume_step_);
  experts_->append(to_json(metrics));
}

void JsonLinesSink::rewind(std::int64_t step) {
  metrics_.rewind(step);
  evaluations_.rewind(step);
  samples_.rewind(step);
  health_.rewind(step);
  if (experts_) experts_->rewind(step);
  if (events_) events_->rewind(step);
}

void JsonLinesSink::finish() {
  metrics_.close();
  evaluations_.close();
  samples_.close();
  health_.close();
  if (experts_) experts_->close();
  if (events_) events_->close();
}

}  // namespace quench
