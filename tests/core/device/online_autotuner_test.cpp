#include "core/device/online_autotuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <random>

#include "core/system/check.h"

namespace quench {
namespace {

// Lets the candidates take their trials, of which `in_flight` are on their way at a time, until one has won. `time` of
// an candidate and the number of its turn, from 0. Returns the trials of each.
using TimeOf = std::function<float(std::size_t, std::size_t)>;
std::vector<std::size_t> play(OnlineAutotuner& autotuner, std::size_t candidates, const TimeOf& time,
                              std::size_t in_flight = 1) {
  std::vector<std::size_t> trials(candidates);
  std::deque<std::pair<std::size_t, float>> running;
  for (int call = 0; !autotuner.decided(); ++call) {
    EXPECT_LT(call, 10000) << "no decision";
    if (call >= 10000) break;
    const auto candidate = autotuner.next();
    if (candidate) {
      autotuner.started(*candidate);
      running.emplace_back(*candidate, time(*candidate, trials[*candidate]++));
    }
    if (running.empty() || (candidate && running.size() < in_flight)) continue;
    autotuner.finished(running.front().first, running.front().second);
    running.pop_front();
  }
  return trials;
}

TimeOf constant(std::vector<float> times) {
  return [times = std::move(times)](std::size_t candidate, std::size_t) { return times[candidate]; };
}

TEST(OnlineAutotuner, ASingleEntrantHasWon) {
  const OnlineAutotuner autotuner(1);
  EXPECT_TRUE(autotuner.decided());
  EXPECT_EQ(autotuner.leader(), 0U);
  EXPECT_FALSE(autotuner.next());
  EXPECT_FALSE(autotuner.best_time());
  EXPECT_THROW(OnlineAutotuner(0), Error);
}

TEST(OnlineAutotuner, AClearWinnerEndsItAfterATurnOfEach) {
  OnlineAutotuner autotuner(8);
  const auto trials = play(autotuner, 8, constant({4.0f, 6.0f, 3.8f, 1.0f, 3.2f, 9.0f, 3.4f, 8.0f}));
  EXPECT_EQ(autotuner.leader(), 3U);
  EXPECT_EQ(trials, std::vector<std::size_t>(8, 1));
  EXPECT_EQ(autotuner.best_time(), 1.0f);
}

TEST(OnlineAutotuner, CloseOnesTakeAllTheirTurns) {
  OnlineAutotuner autotuner(3);
  const auto trials = play(autotuner, 3, constant({1.01f, 1.0f, 1.015f}));
  EXPECT_EQ(autotuner.leader(), 1U);
  EXPECT_EQ(trials, std::vector<std::size_t>(3, OnlineAutotuner::kTrials));
}

TEST(OnlineAutotuner, AHopelessOneTakesOneTurnWhereverItStands) {
  for (std::size_t hopeless = 0; hopeless < 4; ++hopeless) {
    for (const std::size_t in_flight : {1U, 4U, 64U}) {
      SCOPED_TRACE(::testing::Message() << hopeless << ", in flight " << in_flight);
      std::vector<float> times{1.005f, 1.0f, 1.01f, 1.0f};
      times[hopeless] = 3.2f;
      OnlineAutotuner autotuner(4);
      const auto trials = play(autotuner, 4, constant(times), in_flight);
      for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(trials[i], i == hopeless ? 1 : OnlineAutotuner::kTrials);
      EXPECT_NE(autotuner.leader(), hopeless);
    }
  }
}

TEST(OnlineAutotuner, TheFurtherBehindTheFewerTurns) {
  OnlineAutotuner autotuner(5);
  const auto trials = play(autotuner, 5, constant({1.0f, 1.01f, 1.03f, 1.1f, 1.3f}));
  EXPECT_EQ(trials, (std::vector<std::size_t>{OnlineAutotuner::kTrials, OnlineAutotuner::kTrials, 5, 3, 2}));
  EXPECT_EQ(autotuner.trials(), 2 * OnlineAutotuner::kTrials + 10);
  EXPECT_EQ(autotuner.leader(), 0U);
}

// Whichever of its trials is disturbed; a larger disturbance of the first is one that the host knows of (doubt).
TEST(OnlineAutotuner, OneDisturbedTurnDoesNotLose) {
  for (std::size_t disturbed = 0; disturbed < OnlineAutotuner::kTrials; ++disturbed) {
    SCOPED_TRACE(disturbed);
    OnlineAutotuner autotuner(4);
    play(autotuner, 4, [&](std::size_t candidate, std::size_t turn) {
      if (candidate == 2) return turn != disturbed ? 1.0f : turn == 0 ? 2.9f : 10.0f;
      return 1.05f;
    });
    EXPECT_EQ(autotuner.leader(), 2U);
  }
}

TEST(OnlineAutotuner, TheDoubtfulPartOfATimeTakesNobodyOut) {
  for (const float doubt : {0.0f, 30.0f}) {
    OnlineAutotuner autotuner(2);
    autotuner.started(0);
    autotuner.finished(0, 1.0f);
    autotuner.started(1);
    autotuner.finished(1, 31.0f, doubt);
    EXPECT_EQ(autotuner.decided(), doubt == 0.0f);
    EXPECT_EQ(autotuner.leader(), 0U);
    play(autotuner, 2, constant({1.0f, 0.9f}));
    EXPECT_EQ(autotuner.leader(), doubt == 0.0f ? 0U : 1U);
  }
}

// The first turn of each has loaded its kernel: the second one tells.
TEST(OnlineAutotuner, AHopelessOneAfterADoubtfulTimeTakesTwoTurns) {
  OnlineAutotuner autotuner(3);
  std::vector<std::size_t> trials(3);
  const std::vector<float> times{1.0f, 1.3f, 3.2f};
  while (!autotuner.decided()) {
    const auto candidate = autotuner.next();
    ASSERT_TRUE(candidate);
    autotuner.started(*candidate);
    const bool loads = trials[*candidate]++ == 0;
    autotuner.finished(*candidate, times[*candidate] + (loads ? 20.0f : 0.0f), loads ? 20.0f : 0.01f);
  }
  EXPECT_EQ(autotuner.leader(), 0U);
  EXPECT_EQ(trials[2], 2U);
  EXPECT_LE(trials[1], 3U);
}

TEST(OnlineAutotuner, OfEqualOnesTheFirstWins) {
  OnlineAutotuner autotuner(3);
  const auto trials = play(autotuner, 3, constant({1.0f, 1.0f, 1.0f}), 5);
  EXPECT_EQ(autotuner.leader(), 0U);
  EXPECT_EQ(trials, std::vector<std::size_t>(3, OnlineAutotuner::kTrials));
}

TEST(OnlineAutotuner, TurnsAreTakenInOrderAndAwaited) {
  OnlineAutotuner autotuner(3);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(autotuner.next(), i);
    autotuner.started(i);
  }
  EXPECT_FALSE(autotuner.next());  // no second trial before a hopeless candidate may be known
  EXPECT_EQ(autotuner.leader(), 0U);
  autotuner.finished(2, 1.2f);
  EXPECT_EQ(autotuner.leader(), 2U);
  EXPECT_FALSE(autotuner.next());
  autotuner.finished(0, 1.0f);
  EXPECT_FALSE(autotuner.next());
  EXPECT_EQ(autotuner.leader(), 0U);
  autotuner.finished(1, 5.0f);
  EXPECT_EQ(autotuner.remaining(), 2U);
  EXPECT_EQ(autotuner.next(), 0U);
}

TEST(OnlineAutotuner, TimesOfThoseThatLeftAreIgnored) {
  OnlineAutotuner autotuner(3);
  for (std::size_t i = 0; i < 3; ++i) autotuner.started(i);
  autotuner.withdraw(1);
  autotuner.finished(1, 0.1f);
  EXPECT_EQ(autotuner.leader(), 0U);
  EXPECT_EQ(autotuner.remaining(), 2U);
  EXPECT_THROW(autotuner.finished(1, 0.1f), Error);  // no trial in flight
  autotuner.finished(0, 1.0f);
  autotuner.finished(2, 0.3f);
  EXPECT_EQ(autotuner.leader(), 2U);
  EXPECT_TRUE(autotuner.decided());
}

TEST(OnlineAutotuner, WithdrawalsLeaveTheOthersAWinner) {
  OnlineAutotuner autotuner(3);
  autotuner.withdraw(0);
  EXPECT_EQ(autotuner.leader(), 1U);
  EXPECT_EQ(autotuner.next(), 1U);
  autotuner.withdraw(1);
  EXPECT_TRUE(autotuner.decided());
  EXPECT_EQ(autotuner.leader(), 2U);
  EXPECT_THROW(autotuner.withdraw(2), Error);
  autotuner.withdraw(1);  // has left already
  EXPECT_EQ(autotuner.leader(), 2U);
}

// The last one with trials to take leaves, one way or the other: the others have all of theirs.
TEST(OnlineAutotuner, EndsWhenTheLastToPlayLeaves) {
  for (const bool slow : {false, true}) {
    OnlineAutotuner autotuner(3);
    std::size_t of_last = 0;
    while (!autotuner.decided()) {
      const auto candidate = autotuner.next();
      ASSERT_TRUE(candidate);
      autotuner.started(*candidate);
      if (*candidate == 2 && of_last == OnlineAutotuner::kTrials - 1 && !slow) {
        autotuner.withdraw(2);
        break;
      }
      of_last += *candidate == 2 ? 1 : 0;
      autotuner.finished(*candidate, *candidate == 2 && of_last > 4 && slow ? 1.5f : *candidate == 1 ? 1.0f : 1.01f);
    }
    EXPECT_TRUE(autotuner.decided());
    EXPECT_EQ(autotuner.leader(), 1U);
  }
}

// A tenth of the times are disturbed, at any time of the autotuner: the winner is one of the best.
TEST(OnlineAutotuner, FindsAGoodOneInNoise) {
  std::mt19937 random(7);
  const std::vector<float> times{1.1f, 1.0f, 1.6f, 1.2f, 1.01f, 3.0f, 1.3f, 2.0f};
  std::size_t trials = 0;
  constexpr int kContests = 500;
  int good = 0;
  for (int i = 0; i < kContests; ++i) {
    OnlineAutotuner autotuner(times.size());
    play(
        autotuner, times.size(),
        [&](std::size_t candidate, std::size_t) {
          const float noise = 1.0f + 0.01f * static_cast<float>(random() % 1000) / 1000.0f;
          return times[candidate] * noise * (random() % 10 == 0 ? 1.4f : 1.0f);
        },
        8);
    trials += autotuner.trials();
    good += times[autotuner.leader()] < 1.05f ? 1 : 0;
  }
  EXPECT_GE(good, kContests * 99 / 100);
  EXPECT_LE(trials, std::size_t{kContests} * 40);
  EXPECT_GE(trials, std::size_t{kContests} * times.size());
}

}  // namespace
}  // namespace quench
