#include "train/plan/search/plan_search.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "train/plan/search/plan_evaluator.h"

namespace quench {
namespace {

constexpr double kTie = 0.005, kGiB = 1024.0 * 1024 * 1024;
constexpr std::int64_t kMostGpus = 4096;

double seconds(const PlannedRun& run) {
  return run.estimate.time->total();
}

struct Winner {
  PlanCombination combination;
  std::size_t size = 0;  // index of the micro-batch
  const PlannedRun* run = nullptr;

  // No gain within the tie.
  [[nodiscard]] bool beats(double other) const { return run != nullptr && other >= seconds(*run) * (1 - kTie); }
};

// Combinations that differ by choices on ladders alone. Along a ladder memory falls and time does not.
class Group {
 public:
  // `first`: of each ladder the first choice.
  Group(PlanEvaluator& evaluator, PlanCombination first) : evaluator_(evaluator), first_(std::move(first)) {}

  // Seconds of a step of the first choices with the largest micro-batch, whether it fits or not; unset: refused.
  [[nodiscard]] std::optional<double> bound() {
    const PlannedRun* run = evaluator_.run(first_, 0);
    return run != nullptr ? std::optional(seconds(*run)) : std::nullopt;
  }

  void search(Winner& best) {
    // No choices fit with a larger micro-batch than the last ones.
    const std::optional<PlanCombination> end = last();
    if (!end) return;
    if (const std::optional<std::size_t> largest = evaluator_.largest_fit(*end); largest && !is_slow(*largest, best))
      search_from(*largest, best,
                  [&](const PlanCombination& combination) { return evaluator_.largest_fit(combination, *largest); });
  }

  // In a pipeline a larger micro-batch may take longer, so that each is searched that is not too slow by its bubble
  // alone.
  void search_pipeline(Winner& best) {
    const std::optional<PlanCombination> end = last();
    if (!end) return;
    const double computation = evaluator_.least_computation(first_);
    for (std::size_t size = 0; size < evaluator_.micro_batches(first_).size(); ++size) {
      if (best.beats(computation * (1 + evaluator_.bubble(first_, size))) || is_slow(size, best) || !fits(*end, size))
        continue;
      search_from(size, best, [&](const PlanCombination& combination) {
        return fits(combination, size) ? std::optional(size) : std::nullopt;
      });
    }
  }

 private:
  [[nodiscard]] bool fits(const PlanCombination& combination, std::size_t size) {
    const PlannedRun* run = evaluator_.run(combination, size);
    return run != nullptr && run->over_bytes == 0;
  }
  // The first choices are refused or take too long, whether they fit or not.
  [[nodiscard]] bool is_slow(std::size_t size, const Winner& best) {
    const PlannedRun* fastest = evaluator_.run(first_, size);
    return fastest == nullptr || best.beats(seconds(*fastest));
  }
  // Members whose micro-batch is that of index `largest` or smaller; `fit`: the index that is taken, or none.
  template <typename Fit>
  void search_from(std::size_t largest, Winner& best, Fit&& fit) {
    seen_.clear();
    for (const PlanCombination& combination : members()) {
      if (cannot_win(combination, best)) continue;
      const PlannedRun* most = evaluator_.run(combination, largest);
      if (most == nullptr) continue;
      seen_.emplace_back(combination, most);
      if (best.beats(seconds(*most))) continue;
      const std::optional<std::size_t> size = fit(combination);
      if (!size) continue;
      const PlannedRun* run = evaluator_.run(combination, *size);
      if (!best.beats(seconds(*run))) best = {combination, *size, run};
    }
  }
  // The last of the choices that are not refused; unset: all are.
  [[nodiscard]] std::optional<PlanCombination> last() {
    const std::size_t smallest = evaluator_.micro_batches(first_).size() - 1;
    const std::vector<PlanCombination> all = members();
    for (auto one = all.rbegin(); one != all.rend(); ++one)
      if (evaluator_.run(*one, smallest) != nullptr) return *one;
    return std::nullopt;
  }
  // Earlier choices first.
  [[nodiscard]] std::vector<PlanCombination> members() const {
    std::vector<PlanCombination> all{first_};
    for (std::size_t axis = 0; axis < first_.size(); ++axis) {
      if (!plan_axes()[axis].ladder) continue;
      const std::vector<PlanCombination> shorter = std::exchange(all, {});
      for (const PlanCombination& one : shorter)
        for (std::size_t choice = 0; choice < evaluator_.choices()[axis].size(); ++choice) {
          all.push_back(one);
          all.back()[axis] = choice;
        }
    }
    std::ranges::stable_sort(
        all, {}, [](const PlanCombination& one) { return std::accumulate(one.begin(), one.end(), std::size_t{0}); });
    return all;
  }
  // Earlier choices fit with the largest micro-batch, or take too long with it.
  [[nodiscard]] bool cannot_win(const PlanCombination& combination, const Winner& best) const {
    return std::ranges::any_of(seen_, [&](const auto& seen) {
      for (std::size_t axis = 0; axis < combination.size(); ++axis) {
        const std::size_t earlier = seen.first[axis];
        const bool comparable = !evaluator_.choices()[axis][earlier].detour;
        if (earlier != combination[axis] && (earlier > combination[axis] || !comparable)) return false;
      }
      return seen.second->over_bytes == 0 || best.beats(seconds(*seen.second));
    });
  }

  PlanEvaluator& evaluator_;
  PlanCombination first_;
  std::vector<std::pair<PlanCombination, const PlannedRun*>> seen_;  // with the largest micro-batch
};

// Groups without a pipeline by their bounds, until one is no faster than the best run; then those with one.
Winner search(PlanEvaluator& evaluator) {
  std::vector<std::pair<double, Group>> groups;
  std::vector<Group> pipelines;
  for (const PlanCombination& combination : evaluator.combinations()) {
    bool first = true;
    for (std::size_t axis = 0; axis < combination.size(); ++axis)
      first = first && (!plan_axes()[axis].ladder || combination[axis] == 0);
    if (!first) continue;
    Group group(evaluator, combination);
    if (evaluator.is_pipelined(combination))
      pipelines.push_back(std::move(group));
    else if (const auto bound = group.bound())
      groups.emplace_back(*bound, std::move(group));
  }
  std::vector<std::size_t> order(groups.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return groups[i].first; });
  Winner best;
  for (const std::size_t i : order)
    if (!best.beats(groups[i].first)) groups[i].second.search(best);
  for (Group& group : pipelines) group.search_pipeline(best);
  return best;
}

// The part of the step that grows most: "GEMMs".
std::string_view slower_part(const StepTime& other, const StepTime& best) {
  const std::array<std::pair<std::string_view, double>, 9> parts{{
      {"GEMMs", other.products - best.products},
      {"attention", other.attention - best.attention},
      {"passes over memory", other.passes - best.passes},
      {"update", other.update - best.update},
      {"computation slowed by transfers", other.slowed - best.slowed},
      {"waiting for transfers", other.exposed - best.exposed},
      {"expert all-to-all", other.exchange - best.exchange},
      {"waiting for other stages", other.bubble - best.bubble},
      {"copies to host memory", other.host_copies - best.host_copies},
  }};
  return std::ranges::max_element(parts, {}, [](const auto& part) { return part.second; })->first;
}

std::string why_slower(const PlannedRun& other, const PlannedRun& best) {
  const double slower = seconds(other) / seconds(best) - 1;
  if (slower < kTie) return "as fast";
  return fmt::format("{:.1f}% slower: {}", 100 * slower, slower_part(*other.estimate.time, *best.estimate.time));
}

std::string gibibytes_over(const PlannedRun& run) {
  const bool device = !run.estimate.fits_device();
  return fmt::format("{:.1f} GiB over the {}, at micro-batch {}", static_cast<double>(run.over_bytes) / kGiB,
                     device ? "GPU's memory" : "host's memory", run.micro_batch);
}

// The axis of a ladder on which another choice makes a refused combination a run, which it then has: a later one, else
// an earlier one; unset: there is none.
std::optional<std::size_t> repair(PlanEvaluator& evaluator, PlanCombination& combination, std::size_t kept) {
  const std::size_t smallest = evaluator.micro_batches(combination).size() - 1;
  for (std::size_t axis = 0; axis < combination.size(); ++axis) {
    if (axis == kept || !plan_axes()[axis].ladder) continue;
    const std::size_t count = evaluator.choices()[axis].size(), refused = combination[axis];
    for (std::size_t i = 1; i < count; ++i) {
      PlanCombination other = combination;
      other[axis] = refused + i < count ? refused + i : count - 1 - i;
      if (evaluator.run(other, smallest) == nullptr) continue;
      combination = std::move(other);
      return axis;
    }
  }
  return std::nullopt;
}

PlanAlternative alternative(PlanEvaluator& evaluator, const Winner& best, std::size_t axis, std::size_t choice) {
  PlanCombination combination = best.combination;
  combination[axis] = choice;
  PlanAlternative other{std::string(plan_axes()[axis].name), evaluator.choices()[axis][choice].label};
  const std::size_t smallest = evaluator.micro_batches(combination).size() - 1;
  if (evaluator.run(combination, smallest) == nullptr) {
    const std::string fault = evaluator.fault(combination);
    const std::optional<std::size_t> repaired = repair(evaluator, combination, axis);
    if (!repaired) {
      other.loses = "is refused: " + fault.substr(0, fault.find('\n'));
      return other;
    }
    other.changed.push_back(evaluator.choices()[*repaired][combination[*repaired]].label);
  }
  if (const auto size = evaluator.fastest_fit(combination)) {
    const PlannedRun* fit = evaluator.run(combination, *size);
    if (fit->micro_batch != best.run->micro_batch)
      other.changed.push_back(fmt::format("micro-batch {}", fit->micro_batch));
    other.loses = why_slower(*fit, *best.run);
  } else {
    other.loses = gibibytes_over(*evaluator.run(combination, smallest));
  }
  return other;
}

void add_micro_batches(PlanEvaluator& evaluator, const Winner& best, std::vector<PlanAlternative>& all) {
  const std::vector<std::int64_t>& sizes = evaluator.micro_batches(best.combination);
  const auto at = static_cast<std::size_t>(std::ranges::find(sizes, best.run->micro_batch) - sizes.begin());
  if (at >= sizes.size()) return;
  const auto add = [&](std::size_t size) {
    const PlannedRun* other = evaluator.run(best.combination, size);
    if (other == nullptr) return;
    all.push_back({"micro-batch",
                   fmt::format("{}", sizes[size]),
                   {},
                   other->over_bytes > 0 ? gibibytes_over(*other) : why_slower(*other, *best.run)});
  };
  if (at > 0) add(at - 1);
  if (at + 1 < sizes.size()) add(at + 1);
}

// By the choices of the least memory and the smallest micro-batch.
bool fits_somehow(const PlanRequest& request) {
  PlanEvaluator evaluator(request);
  std::vector<PlanCombination> least{{}};
  for (std::size_t axis = 0; axis < plan_axes().size(); ++axis) {
    const std::size_t last = evaluator.choices()[axis].size() - 1;
    const std::vector<PlanCombination> shorter = std::exchange(least, {});
    for (std::size_t choice = plan_axes()[axis].ordered ? last : 0; choice <= last; ++choice)
      for (const PlanCombination& one : shorter) {
        least.push_back(one);
        least.back().push_back(choice);
      }
  }
  // Stages take no less than shards of all layers.
  const auto pipelined = [&](const PlanCombination& combination) { return evaluator.is_pipelined(combination); };
  if (!std::ranges::all_of(least, pipelined)) std::erase_if(least, pipelined);
  return std::ranges::any_of(least, [&](const PlanCombination& combination) {
    const PlannedRun* run = evaluator.run(combination, evaluator.micro_batches(combination).size() - 1);
    return run != nullptr && run->over_bytes == 0;
  });
}

std::vector<std::string> remedies(const PlanRequest& request) {
  std::vector<std::string> all;
  for (std::int64_t gpus = request.gpus * 2; gpus <= kMostGpus; gpus *= 2) {
    PlanRequest more = request;
    more.gpus = gpus;
    if (!fits_somehow(more)) continue;
    all.push_back(fmt::format("--gpus {}", gpus));
    break;
  }
  for (const PlannedGpu& gpu : planned_gpus()) {
    PlanRequest larger = request;
    larger.cluster.gpu = &gpu;
    larger.cluster.rates = planned_rates(gpu);
    if (gpu.memory_bytes <= request.cluster.gpu->memory_bytes || !fits_somehow(larger)) continue;
    all.push_back(fmt::format("--gpu \"{}\"", gpu.title()));
    break;
  }
  for (const PlanObjective& objective : plan_objectives().entries()) {
    PlanRequest other = request;
    other.objective = objective.name;
    if (objective.name == request.objective || !fits_somehow(other)) continue;
    all.push_back(fmt::format("--objective {}", objective.name));
    break;
  }
  return all;
}

[[noreturn]] void fail(PlanEvaluator& evaluator) {
  const PlanRequest& request = evaluator.request();
  const PlannedRun* least = evaluator.smallest();
  if (least == nullptr) {
    const PlanCombination first(evaluator.choices().size(), 0);
    QUENCH_FAIL(ErrorCode::bad_config, "no choice makes a run of this request: {}", evaluator.fault(first));
  }
  const std::vector<std::string> fits = remedies(request);
  QUENCH_FAIL(ErrorCode::out_of_memory,
              "{} does not fit {} x {} with sequences of {} tokens: it takes {:.1f} GiB of a GPU at least ({}), {:.1f} "
              "are available{}",
              request.model, request.gpus, request.cluster.gpu->title(), request.seq_len,
              static_cast<double>(least->estimate.total_bytes) / kGiB, fmt::join(least->choices, "; "),
              static_cast<double>(least->estimate.available_bytes.value_or(0)) / kGiB,
              fits.empty() ? "; shorter sequences or a smaller model are needed"
                           : fmt::format(". Each of these fits: {}", fmt::join(fits, ", ")));
}

}  // namespace

double PlannedRun::tokens_per_second() const {
  return static_cast<double>(estimate.tokens_per_step) / seconds(*this);
}

Plan search_plan(const PlanRequest& request) {
  check_request(request);
  PlanEvaluator evaluator(request);
  Winner best = search(evaluator);
  // Runs that a whole simulation finds not to fit are left out of the next search.
  while (best.run != nullptr) {
    best.run = evaluator.confirm(best.combination, best.size);
    if (best.run != nullptr && best.run->over_bytes == 0) break;
    best = search(evaluator);
  }
  if (best.run == nullptr) fail(evaluator);
  Plan plan{.best = *best.run};
  for (const PlanAxis& axis : plan_axes()) plan.axes.emplace_back(axis.name);
  for (std::size_t axis = 0; axis < best.combination.size(); ++axis)
    for (std::size_t choice = 0; choice < evaluator.choices()[axis].size(); ++choice)
      if (choice != best.combination[axis]) plan.alternatives.push_back(alternative(evaluator, best, axis, choice));
  add_micro_batches(evaluator, best, plan.alternatives);
  plan.estimates = evaluator.estimates();
  return plan;
}

}  // namespace quench
