#pragma once
// Multiple-choice knapsack: one option of each group, of least total cost within a capacity.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace quench {

struct KnapsackOption {
  std::int64_t size = 0;  // at least 0
  double cost = 0;        // finite
};

// Sum of the chosen options' sizes; `choice`: an index of each group.
[[nodiscard]] std::int64_t total_size(std::span<const std::vector<KnapsackOption>> groups,
                                      std::span<const std::size_t> choice);

// Index of the chosen option of each group (none empty); nullopt if even the smallest options exceed the capacity.
// Dynamic programming over sizes in at most 65536 steps: exact if the sizes' differences are multiples of one such
// step, else with sizes rounded up, compared with the Lagrangian relaxation; what is left of the capacity is then used
// by single exchanges. Deterministic.
[[nodiscard]] std::optional<std::vector<std::size_t>> choose_options(
    std::span<const std::vector<KnapsackOption>> groups, std::int64_t capacity);

}  // namespace quench
