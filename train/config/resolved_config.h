#pragma once
// Run config with recipe.name resolved.

#include <optional>

#include "train/config/recipe_choice.h"
#include "train/config/run_config.h"

namespace quench {

// Immutable. RunConfig is as written, may have recipe.name "auto", and is stored, compared and validated. Models are
// built and planned from ResolvedConfig, whose recipe.name is always a recipe.
class ResolvedConfig {
 public:
  // `choice` replaces "auto"; no effect on a named recipe. Default for "auto": bf16.
  explicit ResolvedConfig(RunConfig written, const RecipeChoice& choice = {});

  const RunConfig& operator*() const noexcept { return config_; }
  const RunConfig* operator->() const noexcept { return &config_; }
  // Conversion for functions of any config.
  operator const RunConfig&() const noexcept { return config_; }

  // Resolution of "auto"; nullopt for a named recipe.
  [[nodiscard]] const std::optional<RecipeChoice>& choice() const noexcept { return choice_; }

 private:
  RunConfig config_;
  std::optional<RecipeChoice> choice_;
};

// {"recipe": {"name", "filter": {...}}}: the choice as config text.
[[nodiscard]] Json recipe_section(const ResolvedConfig& config);

}  // namespace quench
