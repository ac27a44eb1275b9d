#pragma once
// Resolution of recipe.name "auto" (train/config/resolved_config.h). Part of the run state, since another choice
// changes the run.

#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "export/schemes/scheme.h"
#include "recipes/recipe.h"
#include "train/config/run_config.h"

namespace quench {

inline constexpr std::string_view kAutoRecipe = "auto";

// Display name of a recipe: the recipe's name; for full high precision named by dtype, "f32 (recipe bf16, no low
// precision)" for f32 parameters.
[[nodiscard]] std::string shown_recipe(std::string_view name, std::string_view dtype);

struct RecipeChoice {
  std::string name = "bf16";
  std::vector<std::string> exclude;  // globs, in addition to the run's filter
  std::string reason;
};

// {"name", "exclude", "reason"}
[[nodiscard]] Json to_json(const RecipeChoice& choice);
// Throws corrupt naming the source for invalid content, including an unknown recipe.
[[nodiscard]] RecipeChoice recipe_choice_from_json(const Json& json, std::string_view source);

// Recipe options that determine the simulated scheme.
[[nodiscard]] recipes::RecipeOptions simulated_formats(const RecipeSection& recipe);
// Export scheme simulated by the run's recipe (QAT); null if it simulates no storage scheme.
[[nodiscard]] const Scheme* simulated_scheme(const RunConfig& config);
// The same for the embedding table; null if it stays in high precision.
[[nodiscard]] const Scheme* simulated_embedding_scheme(const RunConfig& config);

}  // namespace quench
