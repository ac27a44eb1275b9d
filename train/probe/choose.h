#pragma once
// From what was measured to a recipe and its filter. Pure functions.

#include <string>
#include <string_view>
#include <vector>

#include "train/config/recipe_choice.h"
#include "train/probe/layer_errors.h"
#include "train/probe/layer_kind.h"

namespace quench {

// One kind of layer under one recipe.
struct RecipeTime {
  std::string recipe;
  double milliseconds = 0;
  std::string skipped_because;  // not empty: the recipe converts no such layer, and there is no time
};

struct LayerTimes {
  LayerKind kind;
  double high_precision = 0;  // milliseconds
  std::vector<RecipeTime> recipes;

  // Null for a recipe that was not looked at.
  [[nodiscard]] const RecipeTime* find(std::string_view recipe) const noexcept;
};

// What a recipe may lose. Rounding alone costs e4m3 operands 3.7% of y in the mean square (2.6% each); the default
// allows as much again for what single scales do to outliers and small values. Gradients may have twice that: e5m2 has
// one bit less.
struct ErrorBound {
  double output = 0.08;
  [[nodiscard]] double gradient() const noexcept { return 2 * output; }
  [[nodiscard]] bool allows(const ProductErrors& errors) const noexcept;  // not NaN
};

// Why layers are left out of a recipe.
enum class Excluded { by_error, by_time };

struct Exclusion {
  std::string pattern;
  Excluded why = Excluded::by_error;
};

// What to leave out of a recipe. Errors: the layers beyond the bound by name, or all of a kind where more than half of
// them are; where `errors` are of a part of the model only (`sampled`), a kind whose worst layer is beyond it. Times:
// the kinds that are not faster than in high precision. By error first, each in the order of the layers.
[[nodiscard]] std::vector<Exclusion> exclusions(std::string_view recipe, const std::vector<LayerTimes>& layers,
                                                const std::vector<LayerError>& errors, const ErrorBound& bound,
                                                bool sampled);

// A recipe with a filter, to be timed as a whole.
struct Candidate {
  std::string recipe;
  std::vector<std::string> exclude;
  double milliseconds = 0;
};

// bf16; then each recipe without the layers it may not have, and without the slow ones too where there are any and
// something remains. Recipes that convert nothing are left out.
[[nodiscard]] std::vector<Candidate> make_candidates(const std::vector<std::string>& recipes,
                                                     const std::vector<LayerTimes>& layers,
                                                     const std::vector<LayerError>& errors, const ErrorBound& bound,
                                                     bool sampled);

// Less is noise, and not worth a bit of precision.
inline constexpr double kLeastGain = 0.01;

// The fastest candidate, the first of equals; bf16, the first candidate, unless another takes at most 1 - kLeastGain of
// its time.
[[nodiscard]] const Candidate& fastest(const std::vector<Candidate>& candidates);

// The fastest as a choice, "lm_head" excluded: the head is not measured.
[[nodiscard]] RecipeChoice choose(const std::vector<Candidate>& candidates);

}  // namespace quench
