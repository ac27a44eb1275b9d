#include "core/device/timed_contest.h"

#include <algorithm>
#include <array>

#include "core/system/check.h"

namespace quench {
namespace {

// After `turns` turns an entrant that is this many times slower than the best is out. One or two times may be
// disturbed: the margin is wide, and the smallest of those with little doubt counts. From three on the median of all
// counts.
struct Rule {
  std::size_t turns;
  float slack;
};
constexpr std::array kRules{Rule{1, 3.0f}, Rule{2, 1.15f}, Rule{3, 1.04f}, Rule{5, 1.02f}};
constexpr std::size_t kMedianTurns = 3;
constexpr float kLittleDoubt = 0.25f;  // of the time

}  // namespace

// The larger of the middle two.
float TimedContest::Entrant::median() const {
  std::vector<float> sorted = times;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

TimedContest::TimedContest(std::size_t entrants) : entrants_(entrants) {
  QUENCH_CHECK(entrants > 0, "a contest without entrants");
}

std::size_t TimedContest::remaining() const {
  return static_cast<std::size_t>(std::ranges::count(entrants_, false, &Entrant::out));
}

bool TimedContest::decided() const {
  return remaining() == 1;
}

std::optional<std::size_t> TimedContest::next() const {
  if (decided()) return std::nullopt;
  // All take as many turns as the next rule asks for before any takes more.
  std::size_t least = kTurns;
  for (const Entrant& e : entrants_)
    if (!e.out) least = std::min(least, e.times.size());
  const auto rule = std::ranges::find_if(kRules, [least](const Rule& r) { return r.turns > least; });
  std::optional<std::size_t> chosen;
  std::size_t fewest = rule == kRules.end() ? kTurns : rule->turns;
  for (std::size_t i = 0; i < entrants_.size(); ++i) {
    const std::size_t turns = entrants_[i].times.size() + entrants_[i].running;
    if (entrants_[i].out || turns >= fewest) continue;
    fewest = turns;
    chosen = i;
  }
  return chosen;
}

std::size_t TimedContest::leader() const {
  std::optional<std::size_t> best, first;
  float least = 0;
  for (std::size_t i = 0; i < entrants_.size(); ++i) {
    const Entrant& e = entrants_[i];
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

std::optional<float> TimedContest::best_time() const {
  const Entrant& best = entrants_[leader()];
  return best.times.empty() ? std::nullopt : std::optional(best.median());
}

void TimedContest::started(std::size_t entrant) {
  ++entrants_.at(entrant).running;
  ++turns_;
}

void TimedContest::finished(std::size_t entrant, float time, float doubt) {
  Entrant& e = entrants_.at(entrant);
  QUENCH_CHECK(e.running > 0, "entrant {} ends a turn that it has not begun", entrant);
  --e.running;
  if (e.out) return;
  e.times.push_back(time);
  if (doubt <= kLittleDoubt * time) e.least = e.certain++ == 0 ? time - doubt : std::min(e.least, time - doubt);
  drop_slow();
}

void TimedContest::withdraw(std::size_t entrant) {
  Entrant& e = entrants_.at(entrant);
  QUENCH_CHECK(e.out || remaining() > 1, "the last entrant of a contest cannot do its work");
  e.out = true;
  end_if_done();
}

void TimedContest::drop_slow() {
  const float best = entrants_[leader()].median();
  for (Entrant& e : entrants_) {
    if (e.out || e.times.empty()) continue;
    const bool many = e.times.size() >= kMedianTurns;
    const float own = many ? e.median() : e.least;
    for (const Rule& rule : kRules)
      if (rule.turns <= (many ? e.times.size() : e.certain) && own > rule.slack * best) e.out = true;
  }
  end_if_done();
}

void TimedContest::end_if_done() {
  for (const Entrant& e : entrants_)
    if (!e.out && e.times.size() < kTurns) return;
  const std::size_t winner = leader();
  for (std::size_t i = 0; i < entrants_.size(); ++i) entrants_[i].out = i != winner;
}

}  // namespace quench
