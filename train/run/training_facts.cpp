#include "train/run/training_facts.h"
#include "train/config/objective_table.h"

#include <cmath>

#include "train/config/recipe_choice.h"
#include "train/config/section_enum_names.h"
#include "train/metrics/step_metrics.h"
#include "train/session/data_setup.h"

namespace quench {
namespace {

std::string source_names(const std::vector<DataSource>& sources) {
  std::string names;
  for (const DataSource& source : sources)
    names += (names.empty() ? "" : ", ") + std::filesystem::path(source.path).filename().string();
  return names;
}

// "LoRA of rank 16, alpha 32; distillation from teacher-8b (forward_kl)".
std::string method_text(const RunConfig& config) {
  std::string text = "all weights";
  if (!config.training.freeze.empty() || !config.training.train.empty()) text = "some weights, others frozen";
  if (config.lora) {
    const LoraSection& lora = *config.lora;
    const bool dense = lora.base == recipes::BaseForm::dense;
    text = fmt::format("{}LoRA of rank {}, alpha {:g}{}", lora.dora ? "DoRA, " : "", lora.rank, lora.alpha,
                       dense ? "" : fmt::format(", over {} weights", enum_name(lora.base)));
  }
  const ObjectiveEntry& objective = objective_of(config);
  if (objective.facts != nullptr) text += "; " + objective.facts(config);
  return text;
}

}  // namespace

std::string training_data_text(const RunConfig& config, const Dataset& train) {
  std::uint64_t documents = 0, tokens = 0;
  bool known = true;
  for (const WeightedRows& source : train.sources()) {
    const std::uint64_t count = source.rows->source().document_count();
    known = known && count > 0;
    documents += count;
    tokens += source.rows->source().size();
  }
  return fmt::format("{}: {}{} tokens", source_names(config.data.train),
                     known ? format_count(static_cast<std::int64_t>(documents)) + " documents, " : "",
                     format_count(static_cast<std::int64_t>(tokens)));
}

TrainingFacts training_facts(const RunConfig& config, const TrainedState& state) {
  TrainingFacts facts{.base = config.model.path.empty() ? "" : model_name(config.model.path),
                      .scheme = simulated_scheme(config)};
  const auto add = [&](std::string_view label, const std::string& text) { facts.add(label, text); };
  add("Base model", facts.base.empty() ? "none, random weights" : facts.base);
  add("Training data", state.data.empty() ? source_names(config.data.train) : state.data);
  add("Steps", fmt::format("{} of {} sequences of {} tokens, {} trained tokens", format_count(state.step),
                           global_batch_size(config), config.data.seq_len, format_count(state.tokens)));
  add("Trained", method_text(config));
  add("Recipe", fmt::format("`{}`{}", config.recipe.name,
                            facts.scheme == nullptr ? "" : fmt::format(", trained for `{}`", facts.scheme->name)));
  add("Optimizer",
      fmt::format("{}, learning rate {:g}, {}", config.optimizer.name, config.optimizer.lr, config.lr_schedule.name));
  if (state.validation_loss && std::isfinite(*state.validation_loss))
    add("Validation", fmt::format("loss {:.4f}{} on {}", *state.validation_loss,
                                  !objective_of(config).is_likelihood
                                      ? ""
                                      : fmt::format(", perplexity {:.4f} a token,", std::exp(*state.validation_loss)),
                                  source_names(config.data.validation)));
  return facts;
}

}  // namespace quench
