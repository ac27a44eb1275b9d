#pragma once
// What recipe.name "auto" became in a run (train/config/resolved_config.h): part of its state, since another choice
// would be another run.

#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "export/scheme.h"
#include "recipes/recipe.h"
#include "train/config/run_config.h"

namespace quench {

inline constexpr std::string_view kAutoRecipe = "auto";

// A recipe as people read it: the one that keeps all products in high precision by the dtype that they have, "f32
// (recipe bf16, no low precision)" for f32 parameters; others by their names.
[[nodiscard]] std::string shown_recipe(std::string_view name, std::string_view dtype);

struct RecipeChoice {
  std::string name = "bf16";
  std::vector<std::string> exclude;  // globs beside those of the run's own filter
  std::string reason;                // for people
};

// {"name", "exclude", "reason"}
[[nodiscard]] Json to_json(const RecipeChoice& choice);
// Throws corrupt, naming the source, for anything else, a recipe that this program does not have included.
[[nodiscard]] RecipeChoice recipe_choice_from_json(const Json& json, std::string_view source);

// The options by which a recipe's simulated scheme follows from its config section.
[[nodiscard]] recipes::RecipeOptions simulated_formats(const RecipeSection& recipe);
// What the export stores of a model that is trained under the run's recipe; null where that simulates no storage that a
// scheme has.
[[nodiscard]] const Scheme* simulated_scheme(const RunConfig& config);
// The same of the embedding table; null too where that stays in high precision.
[[nodiscard]] const Scheme* simulated_embedding_scheme(const RunConfig& config);

}  // namespace quench
