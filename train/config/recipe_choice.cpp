#include "train/config/recipe_choice.h"

#include "export/ptq/quantize_model.h"

#include "core/ops/quantize/weight_grids.h"

namespace quench {

recipes::LayerFilter layer_filter(const RecipeSection::Filter& filter, const recipes::Recipe& recipe) {
  return {.include = filter.include,
          .exclude = filter.exclude ? *filter.exclude : recipes::default_exclusions(recipe),
          .skip_first_layers = filter.skip_first_layers,
          .skip_last_layers = filter.skip_last_layers};
}

recipes::RecipeOptions simulated_formats(const RecipeSection& recipe) {
  return {.weight_bits = recipe.weight_bits,
          .group_size = recipe.group_size,
          .asymmetric_weights = recipe.asymmetric_weights,
          .weight_grid = require_weight_grid(recipe.weight_grid, "recipe.weight_grid").mapping,
          .scale_dtype = dtype_from_string(recipe.scale_dtype),
          .embedding_bits = recipe.embedding_bits,
          .embedding_group_size = recipe.embedding_group_size,
          .gguf_scheme = recipe.gguf_scheme};
}

std::vector<recipes::LayerRule> recipe_rules(const RecipeSection& recipe) {
  constexpr std::string_view kKey = "recipe.rules";
  std::vector<recipes::LayerRule> rules;
  if (recipe.rules.empty() || recipe.name == kAutoRecipe) return rules;
  const recipes::Recipe& own = recipes::find_recipe(recipe.name);
  const Scheme* usual =
      own.capabilities.scheme != nullptr ? find_scheme(own.capabilities.scheme(simulated_formats(recipe))) : nullptr;
  for (const std::string& text : recipe.rules) {
    const auto [pattern, scheme] = parse_rule(text, kKey);
    recipes::LayerRule& rule = rules.emplace_back(recipes::LayerRule{.pattern = pattern, .scheme = {}});
    if (scheme == nullptr) continue;
    rule.scheme = scheme->name;
    const OperandScheme& weights = scheme->weights;
    const bool same_kind = usual == nullptr || (scheme->inputs == usual->inputs && !weights.element &&
                                                weights.blocks.has_value() == usual->weights.blocks.has_value());
    QUENCH_CHECK_AS(ErrorCode::bad_config, same_kind,
                    "{} '{}': recipe {} trains for {}; name schemes of the same kind, with the same inputs", kKey, text,
                    recipe.name, usual->name);
    if (weights.blocks) continue;
    rule.bits = weights.bits;
    rule.group_size = weights.group_size;
    rule.mapping = weights.mapping;
  }
  return rules;
}

std::string shown_recipe(std::string_view name, std::string_view dtype) {
  if (name != recipes::kBf16.name || dtype != to_string(DType::f32)) return std::string(name);
  return fmt::format("{} (recipe {}, no low precision)", dtype, name);
}

const Scheme* simulated_scheme(const RunConfig& config) {
  const RecipeSection& recipe = config.recipe;
  if (recipe.name == kAutoRecipe) return nullptr;
  // No quantized weight for an unmerged adapter.
  if (config.lora && !config.lora->quantize_merged) return nullptr;
  const auto scheme = recipes::find_recipe(recipe.name).capabilities.scheme;
  return scheme != nullptr ? find_scheme(scheme(simulated_formats(recipe))) : nullptr;
}

bool exports_trained_codes(const RunConfig& config) {
  const Scheme* const trained = simulated_scheme(config);
  return trained != nullptr && config.export_model && config.export_model->quantization.scheme == trained->name;
}

const Scheme* simulated_embedding_scheme(const RunConfig& config) {
  const RecipeSection& recipe = config.recipe;
  if (recipe.name == kAutoRecipe || !recipe.embedding_bits) return nullptr;
  const auto scheme = recipes::find_recipe(recipe.name).capabilities.embedding_scheme;
  return scheme != nullptr ? find_scheme(scheme(simulated_formats(recipe))) : nullptr;
}

Json to_json(const RecipeChoice& choice) {
  Json exclude = Json::array();
  for (const std::string& pattern : choice.exclude) exclude.push_back(pattern);
  return Json(Json::Object{{"name", choice.name}, {"exclude", std::move(exclude)}, {"reason", choice.reason}});
}

RecipeChoice recipe_choice_from_json(const Json& json, std::string_view source) {
  try {
    RecipeChoice choice;
    choice.name = recipes::find_recipe(json.at("name").as_string()).name;
    for (const Json& pattern : json.at("exclude").as_array()) choice.exclude.push_back(pattern.as_string());
    choice.reason = json.at("reason").as_string();
    return choice;
  } catch (const Error& error) {
    QUENCH_FAIL(ErrorCode::corrupt, "{}: the stored choice of recipe.name \"auto\" is damaged: {}", source,
                error.what());
  }
}

}  // namespace quench
