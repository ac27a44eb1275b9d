#include "core/device/timed_contest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <random>

#include "core/system/check.h"

namespace quench {
namespace {

// Lets the entrants take their turns, of which `in_flight` are on their way at a time, until one has won. `time` of an
// entrant and the number of its turn, from 0. Returns the turns of each.
using TimeOf = std::function<float(std::size_t, std::size_t)>;
std::vector<std::size_t> play(TimedContest& contest, std::size_t entrants, const TimeOf& time,
                              std::size_t in_flight = 1) {
  std::vector<std::size_t> turns(entrants);
  std::deque<std::pair<std::size_t, float>> running;
  for (int call = 0; !contest.decided(); ++call) {
    EXPECT_LT(call, 10000) << "no decision";
    if (call >= 10000) break;
    const auto entrant = contest.next();
    if (entrant) {
      contest.started(*entrant);
      running.emplace_back(*entrant, time(*entrant, turns[*entrant]++));
    }
    if (running.empty() || (entrant && running.size() < in_flight)) continue;
    contest.finished(running.front().first, running.front().second);
    running.pop_front();
  }
  return turns;
}

TimeOf constant(std::vector<float> times) {
  return [times = std::move(times)](std::size_t entrant, std::size_t) { return times[entrant]; };
}

TEST(TimedContest, ASingleEntrantHasWon) {
  const TimedContest contest(1);
  EXPECT_TRUE(contest.decided());
  EXPECT_EQ(contest.leader(), 0U);
  EXPECT_FALSE(contest.next());
  EXPECT_FALSE(contest.best_time());
  EXPECT_THROW(TimedContest(0), Error);
}

TEST(TimedContest, AClearWinnerEndsItAfterATurnOfEach) {
  TimedContest contest(8);
  const auto turns = play(contest, 8, constant({4.0f, 6.0f, 3.8f, 1.0f, 3.2f, 9.0f, 3.4f, 8.0f}));
  EXPECT_EQ(contest.leader(), 3U);
  EXPECT_EQ(turns, std::vector<std::size_t>(8, 1));
  EXPECT_EQ(contest.best_time(), 1.0f);
}

TEST(TimedContest, CloseOnesTakeAllTheirTurns) {
  TimedContest contest(3);
  const auto turns = play(contest, 3, constant({1.01f, 1.0f, 1.015f}));
  EXPECT_EQ(contest.leader(), 1U);
  EXPECT_EQ(turns, std::vector<std::size_t>(3, TimedContest::kTurns));
}

TEST(TimedContest, AHopelessOneTakesOneTurnWhereverItStands) {
  for (std::size_t hopeless = 0; hopeless < 4; ++hopeless) {
    for (const std::size_t in_flight : {1U, 4U, 64U}) {
      SCOPED_TRACE(::testing::Message() << hopeless << ", in flight " << in_flight);
      std::vector<float> times{1.005f, 1.0f, 1.01f, 1.0f};
      times[hopeless] = 3.2f;
      TimedContest contest(4);
      const auto turns = play(contest, 4, constant(times), in_flight);
      for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(turns[i], i == hopeless ? 1 : TimedContest::kTurns);
      EXPECT_NE(contest.leader(), hopeless);
    }
  }
}

TEST(TimedContest, TheFurtherBehindTheFewerTurns) {
  TimedContest contest(5);
  const auto turns = play(contest, 5, constant({1.0f, 1.01f, 1.03f, 1.1f, 1.3f}));
  EXPECT_EQ(turns, (std::vector<std::size_t>{TimedContest::kTurns, TimedContest::kTurns, 5, 3, 2}));
  EXPECT_EQ(contest.turns(), 2 * TimedContest::kTurns + 10);
  EXPECT_EQ(contest.leader(), 0U);
}

// Whichever of its turns is disturbed; a larger disturbance of the first is one that the host knows of (doubt).
TEST(TimedContest, OneDisturbedTurnDoesNotLose) {
  for (std::size_t disturbed = 0; disturbed < TimedContest::kTurns; ++disturbed) {
    SCOPED_TRACE(disturbed);
    TimedContest contest(4);
    play(contest, 4, [&](std::size_t entrant, std::size_t turn) {
      if (entrant == 2) return turn != disturbed ? 1.0f : turn == 0 ? 2.9f : 10.0f;
      return 1.05f;
    });
    EXPECT_EQ(contest.leader(), 2U);
  }
}

TEST(TimedContest, TheDoubtfulPartOfATimeTakesNobodyOut) {
  for (const float doubt : {0.0f, 30.0f}) {
    TimedContest contest(2);
    contest.started(0);
    contest.finished(0, 1.0f);
    contest.started(1);
    contest.finished(1, 31.0f, doubt);
    EXPECT_EQ(contest.decided(), doubt == 0.0f);
    EXPECT_EQ(contest.leader(), 0U);
    play(contest, 2, constant({1.0f, 0.9f}));
    EXPECT_EQ(contest.leader(), doubt == 0.0f ? 0U : 1U);
  }
}

// The first turn of each has loaded its kernel: the second one tells.
TEST(TimedContest, AHopelessOneAfterADoubtfulTimeTakesTwoTurns) {
  TimedContest contest(3);
  std::vector<std::size_t> turns(3);
  const std::vector<float> times{1.0f, 1.3f, 3.2f};
  while (!contest.decided()) {
    const auto entrant = contest.next();
    ASSERT_TRUE(entrant);
    contest.started(*entrant);
    const bool loads = turns[*entrant]++ == 0;
    contest.finished(*entrant, times[*entrant] + (loads ? 20.0f : 0.0f), loads ? 20.0f : 0.01f);
  }
  EXPECT_EQ(contest.leader(), 0U);
  EXPECT_EQ(turns[2], 2U);
  EXPECT_LE(turns[1], 3U);
}

TEST(TimedContest, OfEqualOnesTheFirstWins) {
  TimedContest contest(3);
  const auto turns = play(contest, 3, constant({1.0f, 1.0f, 1.0f}), 5);
  EXPECT_EQ(contest.leader(), 0U);
  EXPECT_EQ(turns, std::vector<std::size_t>(3, TimedContest::kTurns));
}

TEST(TimedContest, TurnsAreTakenInOrderAndAwaited) {
  TimedContest contest(3);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(contest.next(), i);
    contest.started(i);
  }
  EXPECT_FALSE(contest.next());  // nobody has a second turn before a hopeless one may be known
  EXPECT_EQ(contest.leader(), 0U);
  contest.finished(2, 1.2f);
  EXPECT_EQ(contest.leader(), 2U);
  EXPECT_FALSE(contest.next());
  contest.finished(0, 1.0f);
  EXPECT_FALSE(contest.next());
  EXPECT_EQ(contest.leader(), 0U);
  contest.finished(1, 5.0f);
  EXPECT_EQ(contest.remaining(), 2U);
  EXPECT_EQ(contest.next(), 0U);
}

TEST(TimedContest, TimesOfThoseThatLeftAreIgnored) {
  TimedContest contest(3);
  for (std::size_t i = 0; i < 3; ++i) contest.started(i);
  contest.withdraw(1);
  contest.finished(1, 0.1f);
  EXPECT_EQ(contest.leader(), 0U);
  EXPECT_EQ(contest.remaining(), 2U);
  EXPECT_THROW(contest.finished(1, 0.1f), Error);  // has no turn on its way
  contest.finished(0, 1.0f);
  contest.finished(2, 0.3f);
  EXPECT_EQ(contest.leader(), 2U);
  EXPECT_TRUE(contest.decided());
}

TEST(TimedContest, WithdrawalsLeaveTheOthersAWinner) {
  TimedContest contest(3);
  contest.withdraw(0);
  EXPECT_EQ(contest.leader(), 1U);
  EXPECT_EQ(contest.next(), 1U);
  contest.withdraw(1);
  EXPECT_TRUE(contest.decided());
  EXPECT_EQ(contest.leader(), 2U);
  EXPECT_THROW(contest.withdraw(2), Error);
  contest.withdraw(1);  // has left already
  EXPECT_EQ(contest.leader(), 2U);
}

// The last one with turns to take leaves, one way or the other: the others have all of theirs.
TEST(TimedContest, EndsWhenTheLastToPlayLeaves) {
  for (const bool slow : {false, true}) {
    TimedContest contest(3);
    std::size_t of_last = 0;
    while (!contest.decided()) {
      const auto entrant = contest.next();
      ASSERT_TRUE(entrant);
      contest.started(*entrant);
      if (*entrant == 2 && of_last == TimedContest::kTurns - 1 && !slow) {
        contest.withdraw(2);
        break;
      }
      of_last += *entrant == 2 ? 1 : 0;
      contest.finished(*entrant, *entrant == 2 && of_last > 4 && slow ? 1.5f : *entrant == 1 ? 1.0f : 1.01f);
    }
    EXPECT_TRUE(contest.decided());
    EXPECT_EQ(contest.leader(), 1U);
  }
}

// A tenth of the times are disturbed, at any time of the contest: the winner is one of the best.
TEST(TimedContest, FindsAGoodOneInNoise) {
  std::mt19937 random(7);
  const std::vector<float> times{1.1f, 1.0f, 1.6f, 1.2f, 1.01f, 3.0f, 1.3f, 2.0f};
  std::size_t turns = 0;
  constexpr int kContests = 500;
  int good = 0;
  for (int i = 0; i < kContests; ++i) {
    TimedContest contest(times.size());
    play(
        contest, times.size(),
        [&](std::size_t entrant, std::size_t) {
          const float noise = 1.0f + 0.01f * static_cast<float>(random() % 1000) / 1000.0f;
          return times[entrant] * noise * (random() % 10 == 0 ? 1.4f : 1.0f);
        },
        8);
    turns += contest.turns();
    good += times[contest.leader()] < 1.05f ? 1 : 0;
  }
  EXPECT_GE(good, kContests * 99 / 100);
  EXPECT_LE(turns, std::size_t{kContests} * 40);
  EXPECT_GE(turns, std::size_t{kContests} * times.size());
}

}  // namespace
}  // namespace quench
