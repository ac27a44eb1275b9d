#pragma once
// 2:4 sparsity: GEMMs use pruned weights, gradients are straight-through, the mask follows the current weights.
// Recipes: recipes/qat/recipes.cpp.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/number/sparsity_2_4.h"
#include "nn/modules/module.h"
#include "recipes/recipe.h"

namespace quench::recipes {

extern const Recipe kSparse24;
extern const Recipe kSparse24Transposable;
extern const Recipe kQatInt4WeightOnlySparse24;

struct SparsityChoice {
  std::string_view name;
  Sparsity24 rule;
};
[[nodiscard]] std::vector<SparsityChoice> sparsity_choices();
// Throws bad_config for an unknown name; `key`: option in the message.
[[nodiscard]] Sparsity24 require_sparsity(std::string_view name, std::string_view key);

// Weights outside `exclude` with a supported shape. Throws bad_config if there are none.
[[nodiscard]] std::set<nn::Parameter*> prunable_weights(nn::Module& root, Sparsity24 rule,
                                                        const std::vector<std::string>& exclude);

// In place; returns their number.
std::int64_t prune(nn::Module& root, Sparsity24 rule, const std::vector<std::string>& exclude);

}  // namespace quench::recipes
