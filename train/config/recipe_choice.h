#pragma once
// Resolution of recipe.name "auto" (resolved_config.h): part of the run state, as another choice changes the run.

#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "export/schemes/scheme.h"
#include "recipes/convert.h"
#include "train/config/run_config.h"

namespace quench {

inline constexpr std::string_view kAutoRecipe = "auto";

// Display name; full high precision by dtype: "f32 (recipe bf16, no low precision)" for f32 parameters.
[[nodiscard]] std::string shown_recipe(std::string_view name, std::string_view dtype);

struct RecipeChoice {
  std::string name = "bf16";
  std::vector<std::string> exclude;  // globs, added to the run's filter
  std::string reason;
};

// {"name", "exclude", "reason"}
[[nodiscard]] Json to_json(const RecipeChoice& choice);
// Throws corrupt naming the source, also for an unknown recipe.
[[nodiscard]] RecipeChoice recipe_choice_from_json(const Json& json, std::string_view source);

// recipe.filter, with the exclusions of `recipe` by default.
[[nodiscard]] recipes::LayerFilter layer_filter(const RecipeSection::Filter& filter, const recipes::Recipe& recipe);
[[nodiscard]] recipes::RecipeOptions simulated_formats(const RecipeSection& recipe);
// recipe.rules. Throws bad_config naming the key for unknown schemes, and for those of another kind than the recipe's:
// other inputs, GGUF types for integers.
[[nodiscard]] std::vector<recipes::LayerRule> recipe_rules(const RecipeSection& recipe);
// Export scheme simulated by the recipe (QAT); null: none.
[[nodiscard]] const Scheme* simulated_scheme(const RunConfig& config);
// The export has the codes that the recipe trains; a method other than RTN would replace them.
[[nodiscard]] bool exports_trained_codes(const RunConfig& config);
// For the embedding table; null: high precision.
[[nodiscard]] const Scheme* simulated_embedding_scheme(const RunConfig& config);

}  // namespace quench
