#include "train/config/resolved_config.h"

#include <algorithm>

#include "recipes/recipe.h"

namespace quench {

ResolvedConfig::ResolvedConfig(RunConfig written, const RecipeChoice& choice) : config_(std::move(written)) {
  RecipeSection& recipe = config_.recipe;
  if (recipe.name != kAutoRecipe) return;
  const recipes::Recipe& chosen = recipes::find_recipe(choice.name);
  recipe.name = chosen.name;
  // Without quantized gradients.
  if (!chosen.capabilities.quantizes_gradients()) recipe.gradient_rounding = RecipeSection::GradientRounding::nearest;
  std::vector<std::string> exclude = layer_filter(recipe.filter, chosen).exclude;
  for (const std::string& pattern : choice.exclude)
    if (std::ranges::find(exclude, pattern) == exclude.end()) exclude.push_back(pattern);
  recipe.filter.exclude = std::move(exclude);
  choice_ = choice;
}

Json recipe_section(const ResolvedConfig& config) {
  const RecipeSection& recipe = config->recipe;
  const auto list = [](const std::vector<std::string>& patterns) {
    Json array = Json::array();
    for (const std::string& pattern : patterns) array.push_back(pattern);
    return array;
  };
  Json filter = Json::object();
  if (!recipe.filter.include.empty()) filter.set("include", list(recipe.filter.include));
  filter.set("exclude", list(layer_filter(recipe.filter, recipes::find_recipe(recipe.name)).exclude));
  if (recipe.filter.skip_first_layers > 0) filter.set("skip_first_layers", recipe.filter.skip_first_layers);
  if (recipe.filter.skip_last_layers > 0) filter.set("skip_last_layers", recipe.filter.skip_last_layers);
  Json section = Json::object();
  section.set("name", recipe.name);
  section.set("filter", std::move(filter));
  return Json(Json::Object{{"recipe", std::move(section)}});
}

}  // namespace quench
