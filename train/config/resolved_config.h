#pragma once
// A run's config with nothing left to choose.

#include <optional>

#include "train/config/recipe_choice.h"
#include "train/config/run_config.h"

namespace quench {

// A RunConfig is what was written: recipe.name may be "auto". It is what a run stores, compares and is checked by.
// Models are built and planned from a ResolvedConfig, whose recipe.name is always the name of a recipe. It does not
// change.
class ResolvedConfig {
 public:
  // `choice` takes the place of "auto"; a config that names its recipe stays as it is. Without a choice "auto" is bf16,
  // for what comes before one is made.
  explicit ResolvedConfig(RunConfig written, const RecipeChoice& choice = {});

  const RunConfig& operator*() const noexcept { return config_; }
  const RunConfig* operator->() const noexcept { return &config_; }
  // For what takes any config.
  operator const RunConfig&() const noexcept { return config_; }

  // What "auto" became; nothing where the config named its recipe.
  [[nodiscard]] const std::optional<RecipeChoice>& choice() const noexcept { return choice_; }

 private:
  RunConfig config_;
  std::optional<RecipeChoice> choice_;
};

// {"recipe": {"name", "filter": {...}}}: what a choice decides, to paste into a config.
[[nodiscard]] Json recipe_section(const ResolvedConfig& config);

}  // namespace quench
