#include "train/run/end_report.h"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "core/system/check.h"
#include "core/system/signals.h"
#include "train/metrics/run_files.h"
#include "train/metrics/step_metrics.h"
#include "train/run/next_commands.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

std::string figures(const RunEnd& end) {
  const std::int64_t done = end.step - end.first_step;
  std::string text = end.stop_signal != 0 ? fmt::format("stopped by {} at step {} of {}", signal_text(end.stop_signal),
                                                        format_count(end.step), format_count(end.steps))
                                          : fmt::format("{} step {} of {}",
                                                        !end.ended_early.empty() ? "ended early at"
                                                        : end.step < end.steps   ? "stopped at"
                                                                                 : "finished",
                                                        format_count(end.step), format_count(end.steps));
  text += fmt::format(": {} steps in {}, {} trained tokens", format_count(done), format_duration(end.seconds),
                      format_count(end.tokens));
  if (end.first_step > 0) text += fmt::format(" ({} over all starts)", format_count(end.tokens_seen));
  text += fmt::format("\n  loss: training {:.4f}", end.loss);
  if (end.validation.last)
    text += fmt::format(", validation {:.4f} at step {}", end.validation.last->loss,
                        format_count(end.validation.last->step));
  if (end.validation.best)
    text += fmt::format(", best validation {:.4f} at step {}", end.validation.best->loss,
                        format_count(end.validation.best->step));
  return text + "\n";
}

}  // namespace

std::string end_report(const RunConfig& config, const RunEnd& end) {
  std::string text = figures(end);
  text += end.checkpoint.empty() ? "  checkpoints: none\n"
                                 : fmt::format("  checkpoints: {}, the newest {}\n",
                                               fs::path(end.checkpoint).parent_path().string(), end.checkpoint);
  if (!end.best_checkpoint.empty())
    text += fmt::format("  best checkpoint: {}{}\n", end.best_checkpoint,
                        end.best_value.empty() ? "" : fmt::format(" ({})", end.best_value));
  if (!end.ended_early.empty()) text += fmt::format("  early stopping: {}\n", end.ended_early);
  if (!end.exported.empty())
    text += fmt::format("  export: {}, {}{}\n", end.exported, config.export_model->format,
                        config.export_model->weights == kAveragedWeights ? ", averaged weights" : "");
  if (end.export_validation) text += fmt::format("  export: {}\n", describe(*end.export_validation));
  const std::vector<std::string> lines = next_commands(config, end);
  if (!lines.empty()) text += "  next:\n";
  for (const std::string& line : lines) text += fmt::format("    {}\n", line);
  return text;
}

}  // namespace quench
