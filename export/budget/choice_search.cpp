#include "export/budget/choice_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "core/number/random.h"
#include "core/system/check.h"

namespace quench {
namespace {

using Groups = std::span<const std::vector<KnapsackOption>>;

// Options of a group in ascending order of size, without those that a smaller one undercuts.
std::vector<std::size_t> ladder_of(const std::vector<KnapsackOption>& options) {
  std::vector<std::size_t> order(options.size()), ladder;
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return std::pair(options[a].size, options[a].cost) < std::pair(options[b].size, options[b].cost);
  });
  for (const std::size_t option : order)
    if (ladder.empty() || options[option].cost < options[ladder.back()].cost) ladder.push_back(option);
  return ladder;
}

class Search {
 public:
  explicit Search(const ChoiceSearch& search) : s_(search), factors_(search.groups.size(), 1.0) {
    for (const auto& options : s_.groups) ladders_.push_back(ladder_of(options));
  }

  FoundChoice run() {
    FoundChoice best{.cost = std::numeric_limits<double>::infinity()};
    for (std::size_t i = 0; i < s_.starts.size(); ++i) {
      const double cost = s_.measure(s_.starts[i]);
      if (i > 0 && !(cost < best.cost)) continue;
      best = {s_.starts[i], cost, i, cost, 0};
    }
    std::size_t moved = std::max<std::size_t>(s_.groups.size() / 8, 1);
    int failed = 0;
    for (std::int64_t trial = 0; trial < s_.trials; ++trial) {
      const std::optional<OptionChoice> other = failed == 7 ? estimated() : neighbour(best.choice, moved);
      const double cost = other && *other != best.choice ? s_.measure(*other) : best.cost;
      if (other && std::isfinite(cost)) learn(best.choice, *other, cost - best.cost);
      if (cost < best.cost) {
        best.choice = *other;
        best.cost = cost;
        ++best.taken;
        failed = 0;
      } else if (++failed == 8) {
        failed = 0;
        moved = std::max<std::size_t>(moved / 2, 1);
      }
    }
    return best;
  }

 private:
  [[nodiscard]] double estimate(std::size_t group, std::size_t option) const {
    return factors_[group] * s_.groups[group][option].cost;
  }

  // Choice under the estimates as corrected by all measurements.
  [[nodiscard]] std::optional<OptionChoice> estimated() const {
    std::vector<std::vector<KnapsackOption>> corrected(s_.groups.begin(), s_.groups.end());
    for (std::size_t g = 0; g < corrected.size(); ++g)
      for (std::size_t o = 0; o < corrected[g].size(); ++o) corrected[g][o].cost = estimate(g, o);
    return choose_options(corrected, s_.capacity);
  }

  // Corrects the factors of the groups that differ, in proportion to their parts in the estimated change (normalized
  // least mean squares).
  void learn(const OptionChoice& from, const OptionChoice& to, double change) {
    std::vector<double> parts(from.size());
    double sum = 0, squares = 0;
    for (std::size_t g = 0; g < from.size(); ++g) {
      parts[g] = estimate(g, to[g]) - estimate(g, from[g]);
      sum += parts[g];
      squares += parts[g] * parts[g];
    }
    if (squares == 0) return;
    constexpr double kRate = 0.5, kMost = 2;
    for (std::size_t g = 0; g < from.size(); ++g)
      factors_[g] *= std::clamp(1 + kRate * (change - sum) * parts[g] / squares, 1 / kMost, kMost);
  }

  // Estimated cost a bit of one step up (1) or down (-1); nullopt: there is none.
  struct Step {
    std::size_t option;
    double cost_per_bit;
  };
  [[nodiscard]] std::optional<Step> step(std::size_t group, std::size_t option, int direction) const {
    const std::vector<KnapsackOption>& options = s_.groups[group];
    const std::vector<std::size_t>& ladder = ladders_[group];
    // The place of an option that is not on the ladder: that of the next smaller one.
    std::ptrdiff_t at = 0;
    for (std::size_t i = 0; i < ladder.size(); ++i)
      if (options[ladder[i]].size <= options[option].size) at = static_cast<std::ptrdiff_t>(i);
    if (ladder[static_cast<std::size_t>(at)] == option || direction > 0) at += direction;
    if (at < 0 || at >= std::ssize(ladder)) return std::nullopt;
    const std::size_t next = ladder[static_cast<std::size_t>(at)];
    const double bits = std::abs(static_cast<double>(options[next].size - options[option].size));
    if (bits == 0) return std::nullopt;
    return Step{next, std::abs(estimate(group, next) - estimate(group, option)) / bits};
  }

  std::size_t draw_group() {
    return static_cast<std::size_t>(random_below({0, hash64("choice search"), 0}, draws_++, s_.groups.size()));
  }

  // The better of two groups drawn: larger gain, or smaller loss.
  [[nodiscard]] std::optional<std::pair<std::size_t, std::size_t>> draw_step(const OptionChoice& choice,
                                                                             const std::vector<bool>& changed,
                                                                             int direction) {
    std::optional<std::pair<std::size_t, std::size_t>> best;
    double best_cost = 0;
    for (int i = 0; i < 2; ++i) {
      const std::size_t group = draw_group();
      if (changed[group]) continue;
      const auto found = step(group, choice[group], direction);
      if (!found || (best && direction * (found->cost_per_bit - best_cost) <= 0)) continue;
      best = {group, found->option};
      best_cost = found->cost_per_bit;
    }
    return best;
  }

  [[nodiscard]] std::optional<OptionChoice> neighbour(const OptionChoice& from, std::size_t moved) {
    OptionChoice choice = from;
    std::vector<bool> changed(s_.groups.size());
    const auto move = [&](int direction) {
      const auto drawn = draw_step(choice, changed, direction);
      if (!drawn) return;
      choice[drawn->first] = drawn->second;
      changed[drawn->first] = true;
    };
    for (std::size_t i = 0; i < moved; ++i) move(1);
    for (std::size_t i = 0; i < 16 * s_.groups.size() && total_size(s_.groups, choice) > s_.capacity; ++i) move(-1);
    if (choice == from || total_size(s_.groups, choice) > s_.capacity) return std::nullopt;
    return choice;
  }

  const ChoiceSearch& s_;
  std::vector<double> factors_;  // corrections of the estimates, by group
  std::vector<std::vector<std::size_t>> ladders_;
  std::uint64_t draws_ = 0;
};

}  // namespace

FoundChoice search_choice(const ChoiceSearch& search) {
  QUENCH_CHECK(!search.starts.empty(), "search_choice: no start");
  return Search(search).run();
}

std::vector<OptionChoice> estimated_choices(Groups groups, std::int64_t capacity) {
  std::vector<OptionChoice> starts;
  const auto add = [&](const std::optional<OptionChoice>& choice) {
    if (choice && std::ranges::find(starts, *choice) == starts.end()) starts.push_back(*choice);
  };
  add(choose_options(groups, capacity));
  std::vector<std::vector<KnapsackOption>> flatter(groups.begin(), groups.end());
  for (auto& group : flatter)
    for (KnapsackOption& option : group) option.cost = std::sqrt(std::max(option.cost, 0.0));
  add(choose_options(flatter, capacity));
  return starts;
}

}  // namespace quench
