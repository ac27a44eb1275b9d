#include "train/metrics/step_metrics.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

namespace quench {
namespace {

constexpr double kNotableDataShare = 0.1;

// Three significant digits: 731, 64.2, 0.052.
std::string format_rate(double value) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  const double size = std::abs(value);
  if (size >= 99.95) return fmt::format("{:.0f}", value);
  if (size >= 9.995) return fmt::format("{:.1f}", value);
  if (size >= 0.9995) return fmt::format("{:.2f}", value);
  return fmt::format("{:.3f}", value);
}

std::string format_grad_norm(double value) {
  const double size = std::abs(value);
  if (size == 0 || (size >= 0.1 && size < 1e5)) return fmt::format("{:.2f}", value);
  return fmt::format("{:.1e}", value);  // also "nan" and "inf"
}

std::string format_loss(double value) {
  return std::abs(value) < 1e5 ? fmt::format("{:.4f}", value) : fmt::format("{:.4e}", value);
}

std::string format_memory(const StepMetrics& metrics) {
  if (metrics.memory_bytes == 0) return "n/a";
  const double gib = static_cast<double>(metrics.memory_bytes) / (1024.0 * 1024.0 * 1024.0);
  std::string text = fmt::format("{:.{}f}GiB", gib, gib < 9.995 ? 2 : 1);
  if (const auto share = metrics.memory_share()) text += fmt::format(" ({:.0f}%)", *share * 100);
  return text;
}

}  // namespace

std::optional<double> StepMetrics::memory_share() const {
  if (memory_capacity_bytes == 0) return std::nullopt;
  return static_cast<double>(memory_bytes) / static_cast<double>(memory_capacity_bytes);
}

double unix_time_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e12) return "n/a";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string format_count(std::int64_t count) {
  std::string digits = fmt::format("{}", count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string format_step_line(const StepMetrics& metrics) {
  std::string line = fmt::format("step {}", metrics.step);
  if (metrics.total_steps > 0) line += fmt::format("/{}", metrics.total_steps);
  line += fmt::format("  loss {}  grad_norm {}  lr {:.1e}", format_loss(metrics.loss),
                      format_grad_norm(metrics.grad_norm), metrics.lr);
  // Beyond 2^53, or NaN.
  const bool countable = std::abs(metrics.tokens_per_second) < 9e15;
  line += "  tok/s " + (countable ? format_count(std::llround(metrics.tokens_per_second)) : "n/a");
  line += "  tflops " + (metrics.tflops ? format_rate(*metrics.tflops) : "n/a");
  line += "  mfu " + (metrics.mfu ? fmt::format("{:.1f}%", *metrics.mfu * 100) : "n/a");
  line += "  mem " + format_memory(metrics);
  line += "  eta " + (metrics.eta_seconds ? format_duration(*metrics.eta_seconds) : "n/a");
  for (const auto& [name, value] : metrics.objective) line += fmt::format("  {} {:.4f}", name, value);
  if (metrics.expert_imbalance) line += fmt::format("  imbal {:.2f}", *metrics.expert_imbalance);
  if (metrics.skipped_steps > 0) line += fmt::format("  skipped {}", format_count(metrics.skipped_steps));
  if (metrics.communication_share.value_or(0) >= kNotableDataShare)
    line += fmt::format("  waits {:.0f}%", *metrics.communication_share * 100);
  if (metrics.bubble) line += fmt::format("  bubble {:.0f}%", *metrics.bubble * 100);
  if (metrics.data_share >= kNotableDataShare) line += fmt::format("  data {:.0f}%", metrics.data_share * 100);
  return line;
}

std::string format_evaluation_line(const EvaluationMetrics& metrics) {
  std::string line = fmt::format("{} at step {}", metrics.name, metrics.step);
  for (const auto& [name, value] : metrics.values) {
    line += fmt::format("  {} {:.{}f}", name, value, std::abs(value) < 10 ? 4 : 2);
  }
  if (metrics.tokens > 0) line += "  tokens " + format_count(metrics.tokens);
  return line + "  time " + format_duration(metrics.seconds);
}

}  // namespace quench
