#pragma once
// 2:4 sparsity of linear layers. The recipes of sparse fine-tuning are in recipes/qat/recipes.cpp: the products see
// pruned weights, gradients go straight through to all elements, and which ones stay is decided anew whenever the
// weights change.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/number/sparsity_2_4.h"
#include "nn/module.h"
#include "recipes/recipe.h"

namespace quench::recipes {

extern const Recipe kSparse24;
extern const Recipe kSparse24Transposable;
extern const Recipe kQatInt4WeightOnlySparse24;

// By name, for options.
struct SparsityChoice {
  std::string_view name;
  Sparsity24 rule;
};
[[nodiscard]] std::vector<SparsityChoice> sparsity_choices();
// Throws bad_config with the list of names for an unknown one; `key` names the option in the message.
[[nodiscard]] Sparsity24 require_sparsity(std::string_view name, std::string_view key);

// The weights of the linear layers that can be pruned: not those of layers whose names match one of the patterns, nor
// those whose shape does not go. Throws bad_config where there is none.
[[nodiscard]] std::set<nn::Parameter*> prunable_weights(nn::Module& root, Sparsity24 rule,
                                                        const std::vector<std::string>& exclude);

// Prunes them for good, as the recipes see them. Returns how many.
std::int64_t prune(nn::Module& root, Sparsity24 rule, const std::vector<std::string>& exclude);

}  // namespace quench::recipes
