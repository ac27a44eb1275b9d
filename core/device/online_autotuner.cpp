#include "core/device/online_autotuner.h"

#include <algorithm>
#include <array>

#include "core/system/check.h"

namespace quench {
namespace {

// Drops candidates slower than the best by this factor after `trials` trials: by the smallest time with little doubt
// below three trials (possibly disturbed, wide margin), from then on by the median.
struct Rule {
  std::size_t trials;
  float slack;
};
constexpr std::array kRules{Rule{1, 3.0f}, Rule{2, 1.15f}, Rule{3, 1.04f}, Rule{5, 1.02f}};
constexpr std::size_t kMedianTrials = 3;
constexpr float kLittleDoubt = 0.25f;  // fraction of the time

}  // namespace

// The larger of the middle two.
float OnlineAutotuner::Candidate::median() const {
  std::vector<float> sorted = times;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

OnlineAutotuner::OnlineAutotuner(std::size_t candidates) : candidates_(candidates) {
  QUENCH_CHECK(candidates > 0, "an autotuner without candidates");
}

std::size_t OnlineAutotuner::remaining() const {
  return static_cast<std::size_t>(std::ranges::count(candidates_, false, &Candidate::out));
}

bool OnlineAutotuner::decided() const {
  return remaining() == 1;
}

std::optional<std::size_t> OnlineAutotuner::next() const {
  if (decided()) return std::nullopt;
  // All candidates reach a rule's trials before any exceeds them.
  std::size_t least = kTrials;
  for (const Candidate& e : candidates_)
    if (!e.out) least = std::min(least, e.times.size());
  const auto rule = std::ranges::find_if(kRules, [least](const Rule& r) { return r.trials > least; });
  std::optional<std::size_t> chosen;
  std::size_t fewest = rule == kRules.end() ? kTrials : rule->trials;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const std::size_t trials = candidates_[i].times.size() + candidates_[i].running;
    if (candidates_[i].out || trials >= fewest) continue;
    fewest = trials;
    chosen = i;
  }
  return chosen;
}

std::size_t OnlineAutotuner::leader() const {
  std::optional<std::size_t> best, first;
  float least = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& e = candidates_[i];
    if (e.out) continue;
    if (!first) first = i;
    if (e.times.empty()) continue;
    const float median = e.median();
    if (best && !(median < least)) continue;
    best = i;
    least = median;
  }
  return best.value_or(first.value_or(0));
}

std::optional<float> OnlineAutotuner::best_time() const {
  const Candidate& best = candidates_[leader()];
  return best.times.empty() ? std::nullopt : std::optional(best.median());
}

void OnlineAutotuner::started(std::size_t candidate) {
  ++candidates_.at(candidate).running;
  ++trials_;
}

void OnlineAutotuner::finished(std::size_t candidate, float time, float doubt) {
  Candidate& e = candidates_.at(candidate);
  QUENCH_CHECK(e.running > 0, "candidate {} finishes a trial that it has not started", candidate);
  --e.running;
  if (e.out) return;
  e.times.push_back(time);
  if (doubt <= kLittleDoubt * time) e.least = e.certain++ == 0 ? time - doubt : std::min(e.least, time - doubt);
  drop_slow();
}

void OnlineAutotuner::withdraw(std::size_t candidate) {
  Candidate& e = candidates_.at(candidate);
  QUENCH_CHECK(e.out || remaining() > 1, "the last candidate of an autotuner failed");
  e.out = true;
  end_if_done();
}

void OnlineAutotuner::drop_slow() {
  const float best = candidates_[leader()].median();
  for (Candidate& e : candidates_) {
    if (e.out || e.times.empty()) continue;
    const bool many = e.times.size() >= kMedianTrials;
    const float own = many ? e.median() : e.least;
    for (const Rule& rule : kRules)
      if (rule.trials <= (many ? e.times.size() : e.certain) && own > rule.slack * best) e.out = true;
  }
  end_if_done();
}

void OnlineAutotuner::end_if_done() {
  for (const Candidate& e : candidates_)
    if (!e.out && e.times.size() < kTrials) return;
  const std::size_t winner = leader();
  for (std::size_t i = 0; i < candidates_.size(); ++i) candidates_[i].out = i != winner;
}

}  // namespace quench
