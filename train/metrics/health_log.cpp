#include "train/metrics/health_log.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/system/log.h"

namespace quench {
namespace {

using recipes::OperandHealth;

constexpr std::size_t kMaxWarnings = 8;  // per step

std::string_view words(recipes::LayerOperand operand) {
  switch (operand) {
    case recipes::LayerOperand::input: return "input";
    case recipes::LayerOperand::weight: return "weight";
    case recipes::LayerOperand::output_gradient: return "output gradient";
  }
  return "operand";
}

std::string name(const OperandHealth& health) {
  return fmt::format("{} of {}", words(health.operand), health.layer);
}

std::string percent(double share) {
  return fmt::format("{:.3g}%", share * 100);
}

}  // namespace

std::vector<HealthFinding> find_faults(std::span<const OperandHealth> operands) {
  std::vector<HealthFinding> findings;
  for (const OperandHealth& health : operands)
    if (!health.finite()) findings.push_back({HealthFault::nonfinite, &health});
  std::ranges::sort(findings, {}, [](const HealthFinding& finding) { return finding.operand->order; });
  for (const OperandHealth& health : operands) {
    if (!health.finite()) continue;  // others are undefined
    if (health.saturated_share() > kMaxSaturatedShare) findings.push_back({HealthFault::saturation, &health});
    if (health.underflow_share() > kMaxUnderflowShare) findings.push_back({HealthFault::underflow, &health});
    // Noise may exceed the signal or be NaN.
    const bool enough = health.error.sqnr() >= recipes::dense_sqnr(health.format, health.stochastic) - kMaxSqnrLoss;
    if (!enough && health.error.noise != 0) findings.push_back({HealthFault::noise, &health});
  }
  return findings;
}

std::string describe(const HealthFinding& finding) {
  const OperandHealth& health = *finding.operand;
  const std::string_view format = to_string(health.format);
  const std::string remedy =
      fmt::format("; to keep the layer in high precision, add \"{}\" to recipe.filter.exclude", health.layer);
  switch (finding.fault) {
    case HealthFault::nonfinite:
      return fmt::format("{} is not finite (amax {}); training.on_nonfinite decides about the step", name(health),
                         health.error.most);
    case HealthFault::saturation:
      return fmt::format("{}: {} of the elements are clipped to the largest {} value: the scale does not fit{}",
                         name(health), percent(health.saturated_share()), format, remedy);
    case HealthFault::underflow:
      return fmt::format("{}: {} of the elements become 0 in {}, more than {}: one scale does not span them{}",
                         name(health), percent(health.underflow_share()), format, percent(kMaxUnderflowShare), remedy);
    case HealthFault::noise:
      return fmt::format("{}: SQNR {:.1f} dB in {}, where dense values have {:.1f}{}", name(health),
                         health.error.sqnr(), format, recipes::dense_sqnr(health.format, health.stochastic), remedy);
  }
  return {};
}

void HealthLog::begin_step(std::int64_t step) {
  measured_.clear();
  if (recorder_ && (step == 1 || step % every_ == 0)) recorder_->arm();
}

void HealthLog::end_step(std::int64_t step, MetricsLog& log) {
  if (!recorder_ || !recorder_->armed()) return;
  measured_ = recorder_->collect();
  if (measured_.empty()) return;
  log.health({.step = step, .operands = measured_});
  warn(step, measured_);
}

std::string HealthLog::first_nonfinite(std::int64_t step, MetricsLog& log, const std::function<void()>& again) {
  if (!recorder_ || recorder_->layer_count() == 0) return {};
  if (measured_.empty()) {
    recorder_->arm();
    again();
    end_step(step, log);
  }
  const OperandHealth* first = recipes::first_nonfinite(measured_);
  return first != nullptr ? name(*first) : std::string();
}

void HealthLog::warn(std::int64_t step, std::span<const OperandHealth> operands) {
  std::size_t fresh = 0, nonfinite = 0;
  for (const HealthFinding& finding : find_faults(operands)) {
    // Later non-finite operands are consequences.
    if (finding.fault == HealthFault::nonfinite && nonfinite++ > 0) continue;
    if (!reported_.emplace(finding.operand->layer, finding.operand->operand, finding.fault).second) continue;
    if (fresh++ < kMaxWarnings) QUENCH_LOG_WARN("step {}: {}", step, describe(finding));
  }
  if (fresh > kMaxWarnings)
    QUENCH_LOG_WARN("step {}: {} more operands beyond the health bounds: see health.jsonl and the report", step,
                    fresh - kMaxWarnings);
}

}  // namespace quench
