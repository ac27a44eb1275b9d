#include "train/config/recipe_choice.h"

#include <algorithm>

#include "recipes/recipe.h"

namespace quench {

RunConfig with_choice(RunConfig config, const RecipeChoice& choice) {
  if (config.recipe.name != kAutoRecipe) return config;
  config.recipe.name = choice.name;
  // A config whose recipe rounds no gradients must not ask for it.
  if (!recipes::find_recipe(choice.name).capabilities.quantizes_gradients())
    config.recipe.gradient_rounding = RecipeSection::GradientRounding::nearest;
  std::vector<std::string>& exclude = config.recipe.filter.exclude;
  for (const std::string& pattern : choice.exclude)
    if (std::ranges::find(exclude, pattern) == exclude.end()) exclude.push_back(pattern);
  return config;
}

namespace {

recipes::RecipeOptions formats_of(const RecipeSection& recipe) {
  return {.weight_bits = recipe.weight_bits,
          .group_size = recipe.group_size,
          .asymmetric_weights = recipe.asymmetric_weights,
          .embedding_bits = recipe.embedding_bits,
          .embedding_group_size = recipe.embedding_group_size};
}

}  // namespace

const Scheme* simulated_scheme(const RunConfig& config) {
  const RecipeSection& recipe = config.recipe;
  if (recipe.name == kAutoRecipe) return nullptr;
  // Adapters beside a quantized weight are more than it stores.
  if (config.lora && !config.lora->quantize_merged) return nullptr;
  const auto scheme = recipes::find_recipe(recipe.name).capabilities.scheme;
  return scheme != nullptr ? find_scheme(scheme(formats_of(recipe))) : nullptr;
}

const Scheme* simulated_embedding_scheme(const RunConfig& config) {
  const RecipeSection& recipe = config.recipe;
  if (recipe.name == kAutoRecipe || !recipe.embedding_bits) return nullptr;
  const auto scheme = recipes::find_recipe(recipe.name).capabilities.embedding_scheme;
  return scheme != nullptr ? find_scheme(scheme(formats_of(recipe))) : nullptr;
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

Json recipe_section(const RunConfig& config) {
  const RecipeSection& recipe = config.recipe;
  const auto list = [](const std::vector<std::string>& patterns) {
    Json array = Json::array();
    for (const std::string& pattern : patterns) array.push_back(pattern);
    return array;
  };
  Json filter = Json::object();
  if (!recipe.filter.include.empty()) filter.set("include", list(recipe.filter.include));
  filter.set("exclude", list(recipe.filter.exclude));
  if (recipe.filter.skip_first_layers > 0) filter.set("skip_first_layers", recipe.filter.skip_first_layers);
  if (recipe.filter.skip_last_layers > 0) filter.set("skip_last_layers", recipe.filter.skip_last_layers);
  Json section = Json::object();
  section.set("name", recipe.name);
  section.set("filter", std::move(filter));
  return Json(Json::Object{{"recipe", std::move(section)}});
}

}  // namespace quench
