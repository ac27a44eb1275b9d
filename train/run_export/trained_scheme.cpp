#include "train/run_export/trained_scheme.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/system/log.h"
#include "export/table/mixed_types.h"
#include "nn/experts/expert_linear.h"
#include "nn/modules/linear.h"
#include "train/check/load.h"
#include "train/config/recipe_choice.h"

namespace quench {
namespace {

// "model.layers.*.mlp.down_proj (28), lm_head"
std::string counted_layers(const std::vector<std::string>& layers) {
  std::vector<std::pair<std::string, int>> counts;
  for (const std::string& layer : layers) {
    const std::string name = recipes::without_index(layer);
    const auto known = std::ranges::find(counts, name, &std::pair<std::string, int>::first);
    if (known == counts.end())
      counts.emplace_back(name, 1);
    else
      ++known->second;
  }
  std::string text;
  for (const auto& [name, count] : counts)
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", name, count == 1 ? "" : fmt::format(" ({})", count));
  return text;
}

}  // namespace

std::vector<std::string> TrainedScheme::untrained_layers(const std::vector<ModelTensor>& tensors) const {
  std::vector<std::string> layers;
  for (const ModelTensor& tensor : tensors) {
    // A part of a layer that runs as one has no type where the others have theirs.
    const bool has_none = !types.empty() && !types.contains(tensor.layer);
    if (!tensor.layer.empty() && (has_none || high_precision.contains(tensor.parameter->name)))
      layers.push_back(tensor.layer);
  }
  return layers;
}

bool TrainedScheme::is_stored_by(const Scheme& stored, const std::string& layer) const {
  if (const auto type = types.find(layer); type != types.end()) return stored.weights.blocks == type->second;
  const recipes::LayerRule* rule = recipes::find_rule(layer_rules, layer);
  const Scheme* trained = rule == nullptr ? scheme : find_scheme(rule->scheme);
  return trained != nullptr && stored.weights == trained->weights && stored.inputs == trained->inputs;
}

void TrainedScheme::require_kept_codes(const std::vector<ModelTensor>& tensors, const QuantizationRules& rules) const {
  if (scheme == nullptr) return;
  const auto keeps_codes = [](const ModelTensor& tensor) {
    int exponent = 0;
    return std::frexp(tensor.factor, &exponent) == 0.5f;
  };
  if (std::ranges::all_of(tensors, keeps_codes)) return;
  for (const auto& [layer, stored] : chosen_schemes(tensors, rules)) {
    if (stored == nullptr || !is_stored_by(*stored, layer)) continue;
    const ModelTensor& tensor = *std::ranges::find(tensors, layer, &ModelTensor::layer);
    QUENCH_CHECK_AS(ErrorCode::unsupported, keeps_codes(tensor) || high_precision.contains(tensor.parameter->name),
                    "{}: the run trained its {} values (recipe {}), and the file holds them times {:.6g}, which keeps "
                    "them for powers of two only; store the layer in high precision (a rule *.q_proj=none), or train "
                    "with the query_pre_attn_scalar that llama.cpp has for these sizes",
                    layer, scheme->name, recipe, tensor.factor);
  }
}

void TrainedScheme::warn_of_others(const std::vector<ModelTensor>& tensors, const QuantizationRules& rules) const {
  if (scheme == nullptr) return;
  const std::vector<std::string> untrained = untrained_layers(tensors);
  std::map<std::string, std::vector<std::string>> others;  // by storing scheme
  for (const auto& [layer, stored] : chosen_schemes(tensors, rules)) {
    if (stored != nullptr && is_stored_by(*stored, layer)) continue;
    if (std::ranges::find(untrained, layer) != untrained.end()) continue;
    others[stored != nullptr ? stored->name : "high precision"].push_back(layer);
  }
  for (const ModelTensor& tensor : tensors) {
    const std::string table = tensor.name.substr(0, tensor.name.rfind('.'));
    const auto trained = types.find(table);
    if (!tensor.embedding || trained == types.end()) continue;
    const Scheme* stored = rules.embeddings != nullptr ? fitting_scheme(*rules.embeddings, tensor.shape[1]) : nullptr;
    if (stored == nullptr || stored->weights.blocks != trained->second)
      others[stored != nullptr ? stored->name : "high precision"].push_back(table);
  }
  for (const auto& [stored, layers] : others)
    QUENCH_LOG_WARN("export: these layers were trained for {} (recipe {}) and are stored as {}: {}", scheme->name,
                    recipe, stored, counted_layers(layers));
}

TrainedScheme trained_scheme(const RunConfig& config, nn::CausalLm& model,
                             std::span<const recipes::LayerConversion> conversion) {
  TrainedScheme trained{.scheme = simulated_scheme(config), .recipe = config.recipe.name, .high_precision = {}};
  recipes::RecipeOptions options = simulated_formats(config.recipe);
  options.rules = trained.layer_rules = recipe_rules(config.recipe);
  if (trained.scheme != nullptr) choose_gguf_types(options, recipes::find_recipe(config.recipe.name), model);
  if (options.gguf_types != nullptr) trained.types = *options.gguf_types;
  std::set<std::string> skipped;
  for (const recipes::LayerConversion& row : conversion)
    if (!row.skipped_because.empty()) skipped.insert(row.name);
  model.visit([&](const std::string& name, nn::Module& module) {
    if (!skipped.contains(name)) return;
    if (auto* linear = dynamic_cast<nn::Linear*>(&module)) trained.high_precision.insert(linear->weight().name);
    if (auto* experts = dynamic_cast<nn::ExpertLinear*>(&module)) trained.high_precision.insert(experts->weight().name);
  });
  return trained;
}

TrainedScheme stored_scheme(const CheckpointReader& reader, const nn::ModelConfig& model, const std::string& source) {
  const RunConfig config = run_config_from_json(reader.state().config, source, {}, {.data = false, .files = false});
  if (simulated_scheme(config) == nullptr) return {};
  const RecipeSection& recipe = config.recipe;
  recipes::RecipeOptions formats = simulated_formats(recipe);
  formats.rules = recipe_rules(recipe);
  formats.target = Device{};
  nn::CausalLm shapes(model, {.dtype = config.training.dtype, .device = {DeviceType::meta, 0}});
  const recipes::Recipe& entry = recipes::find_recipe(recipe.name);
  choose_gguf_types(formats, entry, shapes);
  const auto conversion = recipes::apply_recipe(shapes, entry, layer_filter(recipe.filter, entry), formats);
  return trained_scheme(config, shapes, conversion);
}

}  // namespace quench
