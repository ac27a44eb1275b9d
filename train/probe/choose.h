#pragma once
// Recipe and filter selection from measurements. Pure functions.

#include <string>
#include <string_view>
#include <vector>

#include "train/config/recipe_choice.h"
#include "train/probe/layer_errors.h"
#include "train/probe/layer_kind.h"

namespace quench {

struct RecipeTime {
  std::string recipe;
  double milliseconds = 0;
  std::string skipped_because;  // reason for no conversion and no time; else empty
};

struct LayerTimes {
  LayerKind kind;
  double high_precision = 0;  // milliseconds
  std::vector<RecipeTime> recipes;

  // Null for a recipe that was not measured.
  [[nodiscard]] const RecipeTime* find(std::string_view recipe) const noexcept;
};

// Error bound of a recipe. Rounding alone costs e4m3 operands 3.7% of y in the mean square (2.6% each); the default
// doubles that, for outliers and small values under per-tensor scales. Gradients: twice the bound, since e5m2 has one
// bit less.
struct ErrorBound {
  double output = 0.08;
  [[nodiscard]] double gradient() const noexcept { return 2 * output; }
  [[nodiscard]] bool allows(const ProductErrors& errors) const noexcept;  // false for NaN
};

// Reason for excluding layers from a recipe.
enum class Excluded { by_error, by_time };

struct Exclusion {
  std::string pattern;
  Excluded why = Excluded::by_error;
};

// Layers to exclude from a recipe. By error: layers beyond the bound by name, or the whole kind if more than half are;
// with `sampled` errors (part of the model) a kind whose worst layer is beyond it. By time: kinds not faster than in
// high precision. Errors first, each in layer order.
[[nodiscard]] std::vector<Exclusion> exclusions(std::string_view recipe, const std::vector<LayerTimes>& layers,
                                                const std::vector<LayerError>& errors, const ErrorBound& bound,
                                                bool sampled);

// Recipe and filter, timed as a whole.
struct Candidate {
  std::string recipe;
  std::vector<std::string> exclude;
  double milliseconds = 0;
};

// bf16; then each recipe with error exclusions, and additionally with time exclusions if there are any and layers
// remain. Recipes without converted layers are omitted.
[[nodiscard]] std::vector<Candidate> make_candidates(const std::vector<std::string>& recipes,
                                                     const std::vector<LayerTimes>& layers,
                                                     const std::vector<LayerError>& errors, const ErrorBound& bound,
                                                     bool sampled);

// Minimum relative gain over bf16; less is noise.
inline constexpr double kLeastGain = 0.01;

// Fastest candidate, the first on ties; bf16 (the first candidate) unless another takes at most 1 - kLeastGain of its
// time.
[[nodiscard]] const Candidate& fastest(const std::vector<Candidate>& candidates);

// Fastest candidate as a choice, with "lm_head" excluded, since it is not measured.
[[nodiscard]] RecipeChoice choose(const std::vector<Candidate>& candidates);

}  // namespace quench
