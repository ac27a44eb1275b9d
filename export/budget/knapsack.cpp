#include "export/budget/knapsack.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/system/check.h"

namespace quench {
namespace {

constexpr std::int64_t kMostSteps = 1 << 16;
constexpr int kBisections = 200;

using Groups = std::span<const std::vector<KnapsackOption>>;
using Choice = std::vector<std::size_t>;

double cost_of(Groups groups, const Choice& choice) {
  double cost = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) cost += groups[g][choice[g]].cost;
  return cost;
}

// Smallest options, the cheapest where sizes are equal.
Choice smallest(Groups groups) {
  Choice choice;
  for (const auto& group : groups) {
    const auto least = std::ranges::min_element(group, [](const KnapsackOption& a, const KnapsackOption& b) {
      return a.size != b.size ? a.size < b.size : a.cost < b.cost;
    });
    choice.push_back(static_cast<std::size_t>(least - group.begin()));
  }
  return choice;
}

// Least cost + price * size of each group.
Choice priced(Groups groups, double price) {
  Choice choice;
  for (const auto& group : groups) {
    const auto value = [&](const KnapsackOption& o) { return o.cost + price * static_cast<double>(o.size); };
    const auto least = std::ranges::min_element(group, [&](const KnapsackOption& a, const KnapsackOption& b) {
      return value(a) != value(b) ? value(a) < value(b) : a.size < b.size;
    });
    choice.push_back(static_cast<std::size_t>(least - group.begin()));
  }
  return choice;
}

// By bisection of the price of size, between none and one under which nothing but size counts.
Choice relaxed(Groups groups, std::int64_t capacity, const Choice& least) {
  Choice best = priced(groups, 0);
  if (total_size(groups, best) <= capacity) return best;
  double low = 0, high = 1;
  for (int i = 0; i < kBisections && total_size(groups, priced(groups, high)) > capacity; ++i) high *= 4;
  best = priced(groups, high);
  if (total_size(groups, best) > capacity) return least;
  for (int i = 0; i < kBisections; ++i) {
    const double middle = (low + high) / 2;
    const Choice choice = priced(groups, middle);
    const bool fits = total_size(groups, choice) <= capacity;
    (fits ? high : low) = middle;
    if (fits) best = choice;
  }
  return best;
}

// In units of `step`, rounded up; sizes are counted from the smallest options.
Choice programmed(Groups groups, std::int64_t slack, std::int64_t step, const Choice& least) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const auto steps = static_cast<std::size_t>(slack / step);
  std::vector<double> costs(steps + 1, 0.0), next(steps + 1);
  std::vector<std::vector<std::uint16_t>> chosen(groups.size(), std::vector<std::uint16_t>(steps + 1));
  const auto extra = [&](std::size_t g, std::size_t o) {
    return static_cast<std::size_t>((groups[g][o].size - groups[g][least[g]].size + step - 1) / step);
  };
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::ranges::fill(next, kNever);
    for (std::size_t o = 0; o < groups[g].size(); ++o) {
      const std::size_t size = extra(g, o);
      const double cost = groups[g][o].cost;
      for (std::size_t s = size; s <= steps; ++s)
        if (costs[s - size] + cost < next[s]) {
          next[s] = costs[s - size] + cost;
          chosen[g][s] = static_cast<std::uint16_t>(o);
        }
    }
    costs.swap(next);
  }
  Choice choice(groups.size());
  std::size_t left = steps;
  for (std::size_t g = groups.size(); g-- > 0;) {
    choice[g] = chosen[g][left];
    left -= extra(g, choice[g]);
  }
  return choice;
}

// The exchange that gains most, again and again, while one fits.
void fill_up(Groups groups, std::int64_t capacity, Choice& choice) {
  for (std::int64_t left = capacity - total_size(groups, choice);;) {
    double most = 0;
    std::size_t group = 0, option = 0;
    for (std::size_t g = 0; g < groups.size(); ++g)
      for (std::size_t o = 0; o < groups[g].size(); ++o) {
        const KnapsackOption &now = groups[g][choice[g]], &other = groups[g][o];
        if (other.size - now.size > left || now.cost - other.cost <= most) continue;
        most = now.cost - other.cost;
        group = g;
        option = o;
      }
    if (most <= 0) return;
    left -= groups[group][option].size - groups[group][choice[group]].size;
    choice[group] = option;
  }
}

std::int64_t step_of(Groups groups, const Choice& least, std::int64_t slack) {
  std::int64_t common = 0;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const KnapsackOption& option : groups[g]) common = std::gcd(common, option.size - groups[g][least[g]].size);
  return std::max({common, (slack + kMostSteps - 1) / kMostSteps, std::int64_t{1}});
}

}  // namespace

std::int64_t total_size(Groups groups, std::span<const std::size_t> choice) {
  std::int64_t size = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) size += groups[g][choice[g]].size;
  return size;
}

std::optional<std::vector<std::size_t>> choose_options(Groups groups, std::int64_t capacity) {
  for (const auto& group : groups)
    QUENCH_CHECK(!group.empty() && group.size() <= std::numeric_limits<std::uint16_t>::max(),
                 "choose_options: a group has {} options", group.size());
  const Choice least = smallest(groups);
  std::int64_t slack = capacity - total_size(groups, least);
  if (slack < 0) return std::nullopt;
  std::int64_t all = 0;  // no choice uses more
  for (std::size_t g = 0; g < groups.size(); ++g)
    all += std::ranges::max(groups[g], {}, &KnapsackOption::size).size - groups[g][least[g]].size;
  slack = std::min(slack, all);
  Choice best = programmed(groups, slack, step_of(groups, least, slack), least);
  Choice other = relaxed(groups, capacity, least);
  for (Choice* choice : {&best, &other}) fill_up(groups, capacity, *choice);
  return cost_of(groups, other) < cost_of(groups, best) ? other : best;
}

}  // namespace quench
