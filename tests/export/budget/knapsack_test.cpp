// Multiple-choice knapsack against all combinations.

#include "export/budget/knapsack.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/number/random.h"

namespace quench {
namespace {

using Groups = std::vector<std::vector<KnapsackOption>>;

// Least cost over all combinations within the capacity; infinite: none fits.
double least_cost(const Groups& groups, std::int64_t capacity, std::size_t at = 0) {
  if (capacity < 0) return std::numeric_limits<double>::infinity();
  if (at == groups.size()) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (const KnapsackOption& option : groups[at])
    least = std::min(least, option.cost + least_cost(groups, capacity - option.size, at + 1));
  return least;
}

Groups random_groups(std::uint64_t seed, std::size_t count, std::int64_t unit) {
  Groups groups(count);
  std::uint64_t draw = 0;
  for (auto& group : groups) {
    const std::uint64_t options = 1 + random_below({seed, 1, 0}, draw++, 5);
    for (std::uint64_t o = 0; o < options; ++o) {
      const auto size = static_cast<std::int64_t>(random_below({seed, 1, 0}, draw++, 40)) * unit;
      group.push_back({size, static_cast<double>(random_below({seed, 1, 0}, draw++, 1000)) / 16});
    }
  }
  return groups;
}

std::pair<std::int64_t, double> total(const Groups& groups, const std::vector<std::size_t>& choice) {
  std::pair<std::int64_t, double> sum;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    sum.first += groups[g][choice[g]].size;
    sum.second += groups[g][choice[g]].cost;
  }
  return sum;
}

TEST(Knapsack, FindsTheLeastCostOfAllCombinations) {
  int unmet = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::int64_t unit = seed % 2 == 0 ? 1 : 1'000'003;
    const Groups groups = random_groups(seed, 1 + seed % 6, unit);
    const std::int64_t capacity = static_cast<std::int64_t>(random_below({seed, 2, 0}, 0, 150)) * unit;
    const auto choice = choose_options(groups, capacity);
    const double least = least_cost(groups, capacity);
    ASSERT_EQ(choice.has_value(), least < std::numeric_limits<double>::infinity()) << seed;
    unmet += choice ? 0 : 1;
    if (!choice) continue;
    const auto [size, cost] = total(groups, *choice);
    EXPECT_LE(size, capacity) << seed;
    EXPECT_DOUBLE_EQ(cost, least) << seed;
    EXPECT_EQ(choose_options(groups, capacity), choice) << seed;
  }
  EXPECT_GT(unmet, 5);
  EXPECT_LT(unmet, 150);
}

// Sizes without a common step.
TEST(Knapsack, UsesTheCapacityOfManyGroupsOfOddSizes) {
  Groups groups;
  for (std::uint64_t g = 0; g < 200; ++g) {
    auto& group = groups.emplace_back();
    const auto weights = static_cast<std::int64_t>(100'003 + random_below({9, 3, 0}, g, 900'001));
    const double error = 1.0 + static_cast<double>(random_below({9, 4, 0}, g, 1000));
    for (std::int64_t bits = 2; bits <= 8; ++bits)
      group.push_back({weights * bits + bits, error / static_cast<double>(std::int64_t{1} << (2 * bits))});
  }
  std::int64_t least = 0, most = 0;
  for (const auto& group : groups) {
    least += group.front().size;
    most += group.back().size;
  }
  for (const double share : {0.05, 0.3, 0.7}) {
    const auto capacity = least + static_cast<std::int64_t>(share * static_cast<double>(most - least));
    const auto choice = choose_options(groups, capacity);
    ASSERT_TRUE(choice.has_value());
    EXPECT_LE(total(groups, *choice).first, capacity);
    EXPECT_GE(static_cast<double>(total(groups, *choice).first), 0.99 * static_cast<double>(capacity));
  }
  EXPECT_EQ(choose_options(groups, least - 1), std::nullopt);
  EXPECT_EQ(total(groups, *choose_options(groups, least)).first, least);
  EXPECT_EQ(total(groups, *choose_options(groups, most + 1)).first, most);
}

}  // namespace
}  // namespace quench
