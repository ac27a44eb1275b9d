#include "train/run/end_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <vector>

#include "core/system/check.h"
#include "export/table/format.h"
#include "train/metrics/json_lines.h"
#include "train/metrics/run_files.h"
#include "train/metrics/step_metrics.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

// Control characters as $'\x1b'.
std::string shell_word(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::strchr("_./-=:,@%+", c) != nullptr;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return std::string(text);
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  const bool escaped = std::ranges::any_of(text, control);
  std::string word = escaped ? "$'" : "'";
  for (const char c : text) {
    if (control(c))
      word += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else if (escaped && (c == '\'' || c == '\\'))
      word += fmt::format("\\{}", c);
    else if (c == '\'')
      word += "'\\''";
    else
      word += c;
  }
  return word + "'";
}

std::string figures(const RunEnd& end) {
  const std::int64_t done = end.step - end.first_step;
  std::string text = end.stop_signal != 0
                         ? fmt::format("stopped by signal {} at step {} of {}", end.stop_signal, format_count(end.step),
                                       format_count(end.steps))
                         : fmt::format("{} step {} of {}", end.ended_early.empty() ? "finished" : "ended early at",
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

std::vector<std::string> commands(const RunConfig& config, const RunEnd& end) {
  const std::string run = shell_word(config.run.folder);
  std::string quench = "quench";  // the last command's config names its plug-ins
  for (const std::string& plugin : config.run.plugins) quench += " --plugin " + shell_word(plugin);
  const bool whole = !end.exported.empty() && config.export_model && config.export_model->format != kPeftFormat;
  const bool usable = whole || !end.checkpoint.empty();
  const std::string model = whole ? shell_word(end.exported) : run;
  std::vector<std::string> lines;
  if (usable && end.has_tokenizer)
    lines.push_back(fmt::format("{} generate --model {} {}--prompt \"{}\"", quench, model, end.chats ? "--chat " : "",
                                end.chats ? "Hello" : "Once upon a time"));
  if (usable && !config.preference && !config.data.validation.empty())
    lines.push_back(
        fmt::format("{} eval --model {} --data {}", quench, model, shell_word(config.data.validation.front().path)));
  if (!end.checkpoint.empty() && config.lora && !whole)
    lines.push_back(fmt::format("{} merge-lora --model {} --output {}", quench, run,
                                shell_word((fs::path(config.run.folder) / "merged").string())));
  if (!end.checkpoint.empty() && !config.lora && !whole)
    lines.push_back(fmt::format("{} export --checkpoint {} --format hf --output {}", quench, run,
                                shell_word((fs::path(config.run.folder) / "export").string())));
  if (!end.checkpoint.empty()) {
    const std::string file = shell_word((fs::path(config.run.folder) / run_files::kConfig).string());
    const std::string processes =
        end.ranks > 1 ? fmt::format("run --standalone --nproc-per-node {} ", end.ranks) : std::string();
    const bool by_epochs = !config.training.steps || end.steps < *config.training.steps;
    std::string more;
    if (!end.ended_early.empty())
      more = fmt::format(" --evaluation.early_stopping.patience={}", 2 * config.evaluation.early_stopping.patience);
    else if (end.step >= end.steps)
      more = by_epochs ? fmt::format(" --training.epochs={:g}", 2 * config.training.epochs.value_or(1))
                       : fmt::format(" --training.steps={}", 2 * end.steps);
    lines.push_back(fmt::format("quench {}train {}{}", processes, file, more));
  }
  if (config.metrics.jsonl) lines.push_back(fmt::format("quench report {}", run));
  return lines;
}

}  // namespace

void ValidationLosses::add(Entry entry) {
  last = entry;
  if (std::isfinite(entry.loss) && (!best || entry.loss < best->loss)) best = entry;
}

ValidationLosses read_validation_losses(const std::string& metrics, std::int64_t last_step, std::int64_t from) {
  ValidationLosses losses;
  try {
    (void)read_json_lines(fs::path(metrics) / run_files::kEvaluations, [&](const Json& record, std::int64_t step) {
      const Json* name = record.find("name");
      const Json* values = record.find("values");
      if (step <= from || step > last_step || name == nullptr || *name != Json(kValidation) || values == nullptr ||
          !values->is_object())
        return;
      if (const Json* loss = values->find("loss"); loss != nullptr && loss->is_number())
        losses.add({step, loss->as_double()});
    });
  } catch (const Error&) {
    return {};  // no such log
  }
  return losses;
}

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
  const std::vector<std::string> lines = commands(config, end);
  if (!lines.empty()) text += "  next:\n";
  for (const std::string& line : lines) text += fmt::format("    {}\n", line);
  return text;
}

}  // namespace quench
