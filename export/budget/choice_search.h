#pragma once
// Local search over choices of a knapsack whose true cost can only be measured as a whole.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "export/budget/knapsack.h"

namespace quench {

// Index of the chosen option of each group.
using OptionChoice = std::vector<std::size_t>;

struct ChoiceSearch {
  std::span<const std::vector<KnapsackOption>> groups;  // costs: estimates, which order the trials
  std::int64_t capacity = 0;
  std::vector<OptionChoice> starts;                           // within the capacity, at least one
  std::function<double(const OptionChoice& choice)> measure;  // true cost; infinite: never taken
  std::int64_t trials = 0;                                    // choices measured after the starts
};

struct FoundChoice {
  OptionChoice choice;
  double cost = 0;         // measured
  std::size_t start = 0;   // number of the start it comes from
  double start_cost = 0;   // measured
  std::int64_t taken = 0;  // trials that were better than all before
};

// Measures the starts and continues from the best. A trial takes several groups one option up, to the next larger one
// with less estimated cost, and others down until the capacity suffices; it is kept if its measured cost is less.
// Trials start with an eighth of the groups and halve after eight that fail, the last of which is the choice under the
// estimates as all measurements have corrected them. Draws depend on the arguments alone.
[[nodiscard]] FoundChoice search_choice(const ChoiceSearch& search);

// The choices of least estimated cost, and of the least sum of its square roots, for estimates whose extremes are too
// far apart. Empty: none is within the capacity.
[[nodiscard]] std::vector<OptionChoice> estimated_choices(std::span<const std::vector<KnapsackOption>> groups,
                                                          std::int64_t capacity);

}  // namespace quench
