#include "recipes/sparse.h"

#include <algorithm>

#include "core/ops/quantize/two_of_four.h"
#include "nn/linear.h"
#include "recipes/convert.h"

namespace quench::recipes {

std::vector<SparsityChoice> sparsity_choices() {
  return {{"2:4", TwoOfFour::magnitude}, {"2:4_transposable", TwoOfFour::transposable}};
}

TwoOfFour require_sparsity(std::string_view name, std::string_view key) {
  std::string known;
  for (const SparsityChoice& choice : sparsity_choices()) {
    if (choice.name == name) return choice.rule;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", choice.name);
  }
  QUENCH_FAIL(ErrorCode::bad_config, "{} '{}' is unknown; known: {}", key, name, known);
}

std::int64_t prune(nn::Module& root, TwoOfFour rule, const std::vector<std::string>& exclude) {
  std::int64_t pruned = 0;
  root.visit([&](const std::string& name, nn::Module& module) {
    auto* linear = dynamic_cast<nn::Linear*>(&module);
    if (linear == nullptr) return;
    if (std::ranges::any_of(exclude, [&](const std::string& pattern) { return glob_matches(pattern, name); })) return;
    const Tensor weight = linear->weight().variable.value();
    if (!two_of_four_problem(rule, weight.size(0), weight.size(1)).empty()) return;
    keep_two_of_four({weight, weight, rule});
    linear->weight().mark_changed();
    ++pruned;
  });
  QUENCH_CHECK_AS(ErrorCode::bad_config, pruned > 0, "no linear layer of the model can be pruned to 2:4 sparsity");
  return pruned;
}

}  // namespace quench::recipes
