#include "recipes/sparse.h"

#include <algorithm>

#include "core/ops/quantize/sparsity_2_4.h"
#include "nn/modules/linear.h"
#include "recipes/convert.h"

namespace quench::recipes {

std::vector<SparsityChoice> sparsity_choices() {
  return {{"2:4", Sparsity24::magnitude}, {"2:4_transposable", Sparsity24::transposable}};
}

Sparsity24 require_sparsity(std::string_view name, std::string_view key) {
  std::string known;
  for (const SparsityChoice& choice : sparsity_choices()) {
    if (choice.name == name) return choice.rule;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", choice.name);
  }
  QUENCH_FAIL(ErrorCode::bad_config, "{} '{}' is unknown; known: {}", key, name, known);
}

std::set<nn::Parameter*> prunable_weights(nn::Module& root, Sparsity24 rule, const std::vector<std::string>& exclude) {
  std::set<nn::Parameter*> weights;
  root.visit([&](const std::string& name, nn::Module& module) {
    auto* linear = dynamic_cast<nn::Linear*>(&module);
    if (linear == nullptr) return;
    if (std::ranges::any_of(exclude, [&](const std::string& pattern) { return glob_matches(pattern, name); })) return;
    const Shape& shape = linear->weight().global_shape;
    if (sparsity_2_4_problem(rule, shape[0], shape[1]).empty()) weights.insert(&linear->weight());
  });
  QUENCH_CHECK_AS(ErrorCode::bad_config, !weights.empty(),
                  "no linear layer of the model can be pruned to 2:4 sparsity");
  return weights;
}

std::int64_t prune(nn::Module& root, Sparsity24 rule, const std::vector<std::string>& exclude) {
  const std::set<nn::Parameter*> weights = prunable_weights(root, rule, exclude);
  for (nn::Parameter* weight : weights) {
    const Tensor values = weight->variable.value();
    prune_2_4({values, values, rule});
    weight->mark_changed();
  }
  return static_cast<std::int64_t>(weights.size());
}

}  // namespace quench::recipes
