#include "apps/config/config_summary.h"

#include <vector>

#include "core/memory/memory_limit.h"
#include "core/system/check.h"
#include "nn/spec/model_config.h"
#include "train/check/load.h"
#include "train/config/objective_table.h"
#include "train/config/section_enum_names.h"

namespace quench {
namespace {

// In the comment at the head of a ready run; a test compares it with the estimate.
constexpr std::string_view kGpuMark = "// GPU memory: ";

std::string parameters_line(const EmbeddedConfig& config) {
  const nn::ModelConfig model = nn::parse_model_config(Json::parse(config.text), config.name);
  const auto size = [](std::int64_t count) {
    const auto parameters = static_cast<double>(count);
    return parameters >= 1e9   ? fmt::format("{:.2f}B", parameters / 1e9)
           : parameters >= 1e6 ? fmt::format("{:.1f}M", parameters / 1e6)
                               : fmt::format("{:.0f}K", parameters / 1e3);
  };
  const std::string active =
      model.experts.count > 0 ? fmt::format(" ({} active)", size(model.active_parameter_count())) : "";
  return fmt::format("{} parameters{}, {}", size(model.parameter_count()), active, model.model_type);
}

std::string method_of(const RunConfig& run) {
  constexpr std::string_view kQat = "qat_";
  const std::string& recipe = run.recipe.name;
  const bool qat = recipe.starts_with(kQat);
  std::vector<std::string> parts;
  const ObjectiveEntry& objective = objective_of(run);
  const bool is_named_by_qat = qat && objective.qat_method != ObjectiveEntry{}.qat_method;
  if (objective.method != nullptr && !is_named_by_qat) parts.push_back(objective.method(run));
  if (run.lora)
    parts.push_back(run.lora->base == recipes::BaseForm::dense ? run.lora->dora ? "DoRA" : "LoRA"
                                                               : fmt::format("QLoRA ({})", enum_name(run.lora->base)));
  if (qat) parts.push_back(fmt::format("{} {}", objective.qat_method, recipe.substr(kQat.size())));
  if (parts.empty()) parts.emplace_back(run.model.path.empty() ? "pre-training" : "full fine-tuning");
  std::string method = fmt::format("{}", fmt::join(parts, " + "));
  if (!qat && recipe != "bf16") method += " " + recipe;
  return method;
}

}  // namespace

RunSummary summarize_run(const EmbeddedConfig& run) {
  const RunConfig config = parse_run_config(run.text, std::string(run.name), {}, {.data = false, .files = false});
  RunSummary summary;
  summary.model = config.model.preset.empty() ? config.model.path : config.model.preset;
  summary.method = method_of(config);
  summary.length = config.training.steps          ? fmt::format("{} steps", *config.training.steps)
                   : *config.training.epochs == 1 ? "1 epoch"
                                                  : fmt::format("{} epochs", *config.training.epochs);
  if (const auto limit = parse_memory_size(config.training.memory_limit))
    summary.gpu = fmt::format("{:.0f} GB", static_cast<double>(*limit) / 1e9);
  else if (const std::size_t mark = run.text.find(kGpuMark); mark != std::string_view::npos) {
    const std::size_t begin = mark + kGpuMark.size();
    summary.gpu = run.text.substr(begin, run.text.find('\n', begin) - begin);
  }
  if (config.export_model) summary.exported = config.export_model->format;
  return summary;
}

std::string summary_line(const EmbeddedConfig& config) {
  if (config.kind == "models") return parameters_line(config);
  const RunSummary run = summarize_run(config);
  return fmt::format("{}: {}, {}{}{}", run.model, run.method, run.length,
                     run.gpu.empty() ? "" : fmt::format(", GPU of {}", run.gpu),
                     run.exported.empty() ? "" : fmt::format(", exports {}", run.exported));
}

}  // namespace quench
