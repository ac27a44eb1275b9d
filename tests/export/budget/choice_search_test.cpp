// Local search over choices with a cost that no sum of options gives.

#include "export/budget/choice_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/number/random.h"

namespace quench {
namespace {

using Groups = std::vector<std::vector<KnapsackOption>>;

// Estimates that fall with the size; `factor` of a group: what they miss.
struct Problem {
  Groups groups;
  std::vector<double> factors;

  explicit Problem(std::size_t count) {
    for (std::size_t g = 0; g < count; ++g) {
      std::vector<KnapsackOption>& options = groups.emplace_back();
      for (int bits = 2; bits <= 8; ++bits) options.push_back({bits * 100, std::exp2(-2.0 * bits)});
      factors.push_back(1.0 + static_cast<double>(random_below({1, 1, 0}, g, 100)));
    }
  }
  [[nodiscard]] std::int64_t size(const OptionChoice& choice) const {
    std::int64_t sum = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) sum += groups[g][choice[g]].size;
    return sum;
  }
  [[nodiscard]] double cost(const OptionChoice& choice) const {
    double sum = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) sum += factors[g] * groups[g][choice[g]].cost;
    return sum;
  }
};

TEST(ChoiceSearch, FindsWhatTheEstimateMisses) {
  const Problem problem(40);
  const std::int64_t capacity = 40 * 400;
  std::int64_t calls = 0;
  ChoiceSearch search{.groups = problem.groups,
                      .capacity = capacity,
                      .starts = {OptionChoice(40, 0), OptionChoice(40, 2), OptionChoice(40, 1)},
                      .measure =
                          [&](const OptionChoice& choice) {
                            EXPECT_LE(problem.size(choice), capacity);
                            ++calls;
                            return problem.cost(choice);
                          },
                      .trials = 400};
  const FoundChoice found = search_choice(search);
  EXPECT_EQ(found.start, 1u);
  EXPECT_EQ(found.start_cost, problem.cost(OptionChoice(40, 2)));
  EXPECT_EQ(found.cost, problem.cost(found.choice));
  EXPECT_LT(found.cost, 0.85 * found.start_cost);
  EXPECT_GT(found.taken, 5);
  EXPECT_LE(calls, 403);
  // The choice that knows the factors is the bound.
  Groups true_costs = problem.groups;
  for (std::size_t g = 0; g < 40; ++g)
    for (KnapsackOption& option : true_costs[g]) option.cost *= problem.factors[g];
  EXPECT_LT(found.cost, 1.15 * problem.cost(*choose_options(true_costs, capacity)));
  EXPECT_EQ(search_choice(search).choice, found.choice) << "the same again";
}

TEST(ChoiceSearch, KeepsTheBestStartWithoutTrialsAndWhereNothingMoves) {
  const Problem problem(3);
  ChoiceSearch search{.groups = problem.groups,
                      .capacity = 100'000,
                      .starts = {OptionChoice(3, 6), OptionChoice(3, 1)},
                      .measure = [&](const OptionChoice& choice) { return problem.cost(choice); },
                      .trials = 0};
  EXPECT_EQ(search_choice(search).choice, OptionChoice(3, 6));
  search.trials = 50;  // all groups have the largest option
  EXPECT_EQ(search_choice(search).choice, OptionChoice(3, 6));
  search.starts = {OptionChoice(3, 3)};
  EXPECT_EQ(search_choice(search).choice, OptionChoice(3, 6)) << "the capacity is not used up";
}

TEST(ChoiceSearch, NeverTakesAnInfiniteCost) {
  const Problem problem(4);
  const ChoiceSearch search{.groups = problem.groups,
                            .capacity = 4 * 400,
                            .starts = {OptionChoice(4, 2)},
                            .measure =
                                [](const OptionChoice& choice) {
                                  return choice == OptionChoice(4, 2) ? 1.0 : std::numeric_limits<double>::infinity();
                                },
                            .trials = 30};
  const FoundChoice found = search_choice(search);
  EXPECT_EQ(found.choice, OptionChoice(4, 2));
  EXPECT_EQ(found.taken, 0);
}

TEST(ChoiceSearch, EstimatedChoicesAreWithinTheCapacity) {
  const Problem problem(10);
  const auto starts = estimated_choices(problem.groups, 3'500);
  ASSERT_FALSE(starts.empty());
  for (const OptionChoice& start : starts) EXPECT_LE(problem.size(start), 3'500);
  EXPECT_TRUE(estimated_choices(problem.groups, 1'999).empty());
}

}  // namespace
}  // namespace quench
