#pragma once
// Run config with its recipe chosen.

#include <optional>

#include "train/config/recipe_choice.h"
#include "train/config/run_config.h"

namespace quench {

// Immutable. RunConfig is as written (recipe.name may be "auto"), stored, compared and validated; models are built and
// planned from ResolvedConfig, whose recipe.name is a recipe.
class ResolvedConfig {
 public:
  // `choice` replaces "auto" (default: bf16); no effect on a named recipe.
  explicit ResolvedConfig(RunConfig written, const RecipeChoice& choice = {});

  const RunConfig& operator*() const noexcept { return config_; }
  const RunConfig* operator->() const noexcept { return &config_; }
  operator const RunConfig&() const noexcept { return config_; }

  // nullopt for a named recipe.
  [[nodiscard]] const std::optional<RecipeChoice>& choice() const noexcept { return choice_; }

 private:
  RunConfig config_;
  std::optional<RecipeChoice> choice_;
};

// {"recipe": {"name", "filter": {...}}}: the choice as config text.
[[nodiscard]] Json recipe_section(const ResolvedConfig& config);

}  // namespace quench
