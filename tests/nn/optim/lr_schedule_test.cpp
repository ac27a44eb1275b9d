#include "nn/optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "core/system/check.h"

namespace quench {
namespace {

LrScheduleOptions options(const std::string& name, std::int64_t total, std::int64_t warmup, double min_ratio = 0.0) {
  LrScheduleOptions result;
  result.name = name;
  result.peak_lr = 2.0;
  result.total_steps = total;
  result.warmup_steps = warmup;
  result.min_lr_ratio = min_ratio;
  return result;
}

void expect_bad_config(const LrScheduleOptions& bad, const std::string& part) {
  try {
    LrSchedule schedule(bad);
    FAIL() << "accepted a schedule that should say: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(LrSchedule, WarmupStepHasItsOneBasedShareOfThePeak) {
  const LrSchedule schedule(options("constant", 10, 4));
  EXPECT_DOUBLE_EQ(schedule.lr(0), 0.5);
  EXPECT_DOUBLE_EQ(schedule.lr(1), 1.0);
  EXPECT_DOUBLE_EQ(schedule.lr(3), 2.0);
  for (std::int64_t step = 4; step < 20; ++step) EXPECT_DOUBLE_EQ(schedule.lr(step), 2.0) << step;
}

TEST(LrSchedule, WithoutWarmupTheFirstStepHasThePeak) {
  for (const LrScheduleEntry& entry : lr_schedules())
    EXPECT_DOUBLE_EQ(LrSchedule(options(std::string(entry.name), 10, 0)).lr(0), 2.0) << entry.name;
}

TEST(LrSchedule, LinearFallsEvenlyAndNeverReachesZeroWithinTheRun) {
  const LrSchedule schedule(options("linear", 10, 2));
  EXPECT_DOUBLE_EQ(schedule.lr(2), 2.0);
  EXPECT_DOUBLE_EQ(schedule.lr(6), 1.0);
  EXPECT_DOUBLE_EQ(schedule.lr(9), 2.0 / 8.0);
  EXPECT_DOUBLE_EQ(schedule.lr(10), 0.0);
  EXPECT_DOUBLE_EQ(schedule.lr(1000), 0.0);
}

TEST(LrSchedule, CosineHasItsHalfwayAndItsFloor) {
  const LrSchedule schedule(options("cosine", 110, 10, 0.1));
  EXPECT_DOUBLE_EQ(schedule.factor(10), 1.0);
  EXPECT_NEAR(schedule.factor(60), 0.55, 1e-12);
  EXPECT_NEAR(schedule.factor(35), 0.1 + 0.9 * 0.5 * (1.0 + std::cos(std::numbers::pi / 4)), 1e-12);
  EXPECT_GT(schedule.factor(109), 0.1);
  EXPECT_DOUBLE_EQ(schedule.factor(110), 0.1);
}

TEST(LrSchedule, WsdStaysAtThePeakUntilTheDecay) {
  auto wsd = options("wsd", 100, 10, 0.2);
  wsd.decay_steps = 40;
  const LrSchedule linear(wsd);
  for (std::int64_t step = 10; step <= 60; ++step) EXPECT_DOUBLE_EQ(linear.factor(step), 1.0) << step;
  EXPECT_DOUBLE_EQ(linear.factor(70), 0.2 + 0.8 * 0.75);
  EXPECT_DOUBLE_EQ(linear.factor(99), 0.2 + 0.8 * (1.0 - 39.0 / 40.0));

  wsd.decay_shape = LrDecayShape::sqrt;
  EXPECT_DOUBLE_EQ(LrSchedule(wsd).factor(70), 0.2 + 0.8 * (1.0 - std::sqrt(0.25)));
  wsd.decay_shape = LrDecayShape::cosine;
  EXPECT_NEAR(LrSchedule(wsd).factor(80), 0.6, 1e-12);
}

TEST(LrSchedule, WsdDecaysOverAFifthByDefault) {
  EXPECT_EQ(LrSchedule(options("wsd", 100, 10)).decay_steps(), 20);
  EXPECT_EQ(LrSchedule(options("wsd", 100, 95)).decay_steps(), 5);
  EXPECT_EQ(LrSchedule(options("wsd", 3, 0)).decay_steps(), 1);
  EXPECT_EQ(LrSchedule(options("wsd", 3, 3)).decay_steps(), 0);
}

// The decay of every schedule is monotone and every update of a run has a positive rate, whatever the lengths.
TEST(LrSchedule, IsPositiveAndMonotoneAfterTheWarmup) {
  for (const std::string kind : {"linear", "cosine", "wsd"})
    for (const std::int64_t total : {1, 2, 7, 100})
      for (std::int64_t warmup = 0; warmup <= total; warmup += 3) {
        const LrSchedule schedule(options(kind, total, warmup));
        double previous = schedule.lr(warmup);
        for (std::int64_t step = 0; step < total; ++step) EXPECT_GT(schedule.lr(step), 0.0);
        for (std::int64_t step = warmup; step < total + 3; ++step) {
          EXPECT_LE(schedule.lr(step), previous) << kind << " step " << step << " of " << total;
          previous = schedule.lr(step);
        }
      }
}

TEST(LrSchedule, CosineMayEndItsDecayBeforeOrAfterTheRun) {
  auto early = options("cosine", 100, 10, 0.1);
  early.decay_steps = 40;
  EXPECT_NEAR(LrSchedule(early).factor(30), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(LrSchedule(early).factor(50), 0.1);
  EXPECT_DOUBLE_EQ(LrSchedule(early).factor(99), 0.1);
  auto late = options("linear", 100, 0);
  late.decay_steps = 200;
  EXPECT_DOUBLE_EQ(LrSchedule(late).factor(99), 1.0 - 99.0 / 200.0);
}

TEST(LrSchedule, WarmupOverTheWholeRunEndsAtThePeak) {
  const LrSchedule schedule(options("cosine", 5, 5, 0.1));
  EXPECT_DOUBLE_EQ(schedule.factor(4), 1.0);
}

TEST(LrSchedule, ImpossibleValuesAreNamed) {
  expect_bad_config(options("cosine", 0, 0), "at least 1 training step, got 0");
  expect_bad_config(options("cosine", 10, 11), "between 0 and the 10 training steps, got 11");
  expect_bad_config(options("cosine", 10, -1), "got -1");
  expect_bad_config(options("cosine", 10, 1, 1.5), "got 1.5");
  expect_bad_config(options("cosine", 10, 1, std::numeric_limits<double>::quiet_NaN()), "min_lr_ratio");
  auto bad = options("cosine", 10, 1);
  bad.peak_lr = std::numeric_limits<double>::infinity();
  expect_bad_config(bad, "positive number");
  bad.peak_lr = -1e-3;
  expect_bad_config(bad, "got -0.001");
  bad = options("wsd", 10, 4);
  bad.decay_steps = 7;
  expect_bad_config(bad, "between 1 and 6 (10 training steps less 4 of warm-up), got 7");
  bad.name = "constant";
  expect_bad_config(bad, "the constant schedule has no decay");
  bad.name = "linear";
  bad.decay_steps = 0;
  expect_bad_config(bad, "decay_steps must be at least 1, got 0");
}

TEST(LrSchedule, NegativeStepThrows) {
  EXPECT_THROW((void)LrSchedule(options("constant", 10, 0)).lr(-1), Error);
}

TEST(LrSchedule, UnknownNamesAreRefusedWithTheKnownOnes) {
  expect_bad_config(options("cosin", 10, 0), "'cosin' is unknown; known: cosine, linear, wsd, constant");
}

// Registered<LrScheduleEntry>: a row is all that a schedule needs.
const Registered<LrScheduleEntry> kSquare{{"square", "a parabola from the peak to the floor",
                                           LrScheduleEntry::Decay::after_warmup,
                                           [](double progress) { return (1 - progress) * (1 - progress); }}};

TEST(LrSchedule, RegisteredScheduleIsApplied) {
  const LrSchedule schedule(options("square", 12, 2, 0.2));
  EXPECT_DOUBLE_EQ(schedule.factor(2), 1.0);
  EXPECT_DOUBLE_EQ(schedule.factor(7), 0.2 + 0.8 * 0.25);
  EXPECT_DOUBLE_EQ(schedule.factor(12), 0.2);
}

}  // namespace
}  // namespace quench
