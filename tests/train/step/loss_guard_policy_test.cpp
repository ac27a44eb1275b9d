#include <gtest/gtest.h>

#include <limits>

#include "core/system/check.h"
#include "train/step/loss_guard.h"

namespace quench {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

LossGuardOptions policy(NonfinitePolicy on_nonfinite, std::int64_t max_skips = 3) {
  LossGuardOptions options;
  options.on_nonfinite = on_nonfinite;
  options.max_consecutive_skips = max_skips;
  return options;
}

// A loss that wanders around 3 by a few hundredths, the same for every run.
double calm(std::int64_t step) {
  return 3.0 + 0.01 * static_cast<double>((step * 7) % 11 - 5);
}

void run_calm(LossGuard& guard, std::int64_t from, std::int64_t to) {
  for (std::int64_t step = from; step < to; ++step) {
    const auto verdict = guard.check(step, calm(step), calm(step) / 3);
    ASSERT_EQ(verdict.action, StepAction::apply) << step;
    ASSERT_FALSE(verdict.spike) << step << ": " << verdict.message;
  }
}

TEST(LossGuardPolicy, StopEndsAtTheFirstNonFiniteValueAndNamesIt) {
  for (const auto& [loss, norm] : {std::pair{kNan, 1.0}, {kInf, 1.0}, {-kInf, 1.0}, {3.0, kNan}, {3.0, kInf}}) {
    LossGuard guard(policy(NonfinitePolicy::stop));
    const auto verdict = guard.check(12, loss, norm, "model.layers.3.mlp.down_proj.weight");
    EXPECT_EQ(verdict.action, StepAction::stop);
    EXPECT_TRUE(verdict.nonfinite);
    EXPECT_NE(verdict.message.find("step 12"), std::string::npos);
    EXPECT_NE(verdict.message.find("model.layers.3.mlp.down_proj.weight"), std::string::npos) << verdict.message;
  }
}

TEST(LossGuardPolicy, SkipCountsConsecutiveStepsAndStartsAnewAfterAGoodOne) {
  LossGuard guard(policy(NonfinitePolicy::skip, 3));
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t i = 1; i <= 3; ++i) {
      EXPECT_EQ(guard.check(i, kNan, 1.0).action, StepAction::skip);
      EXPECT_EQ(guard.consecutive_skips(), i);
    }
    EXPECT_EQ(guard.check(4, 3.0, 1.0).action, StepAction::apply);
    EXPECT_EQ(guard.consecutive_skips(), 0);
  }
  EXPECT_EQ(guard.skipped_steps(), 6);
}

TEST(LossGuardPolicy, AStepWithoutTargetsIsSkippedUnderEveryPolicy) {
  for (const NonfinitePolicy on_nonfinite : {NonfinitePolicy::stop, NonfinitePolicy::skip, NonfinitePolicy::rollback}) {
    LossGuard guard(policy(on_nonfinite, 1));
    run_calm(guard, 0, 30);
    const std::string before = guard.state().at("losses").dump();
    for (int i = 0; i < 5; ++i) {
      const StepVerdict verdict = guard.skip_without_targets(31 + i);
      EXPECT_EQ(verdict.action, StepAction::skip);
      EXPECT_EQ(verdict.message.empty(), i > 0) << verdict.message;
    }
    EXPECT_EQ(guard.skipped_steps(), 5);
    EXPECT_EQ(guard.consecutive_skips(), 0);
    EXPECT_EQ(guard.state().at("losses").dump(), before);
  }
}

TEST(LossGuardPolicy, SkipStopsBeyondItsLimit) {
  LossGuard guard(policy(NonfinitePolicy::skip, 3));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(guard.check(i, 3.0, kInf).action, StepAction::skip);
  const auto verdict = guard.check(3, 3.0, kInf);
  EXPECT_EQ(verdict.action, StepAction::stop);
  EXPECT_NE(verdict.message.find("3 skipped steps in a row"), std::string::npos) << verdict.message;
  EXPECT_EQ(guard.skipped_steps(), 3);
  LossGuard none(policy(NonfinitePolicy::skip, 0));
  EXPECT_EQ(none.check(0, kNan, 1.0).action, StepAction::stop);
}

TEST(LossGuardPolicy, RollbackHappensOnceUntilTheFailedStepIsPassed) {
  LossGuard guard(policy(NonfinitePolicy::rollback));
  const Json checkpoint = guard.state();
  EXPECT_EQ(guard.check(40, kNan, 1.0).action, StepAction::rollback);
  guard.restore(checkpoint);
  for (std::int64_t step = 30; step < 40; ++step) EXPECT_EQ(guard.check(step, 3.0, 1.0).action, StepAction::apply);
  // The failed step is good this time: a later failure may roll back again.
  EXPECT_EQ(guard.check(40, 3.0, 1.0).action, StepAction::apply);
  EXPECT_EQ(guard.check(41, kNan, 1.0).action, StepAction::rollback);
  guard.restore(checkpoint);
  const auto again = guard.check(41, kNan, 1.0);
  EXPECT_EQ(again.action, StepAction::stop);
  EXPECT_NE(again.message.find("already rolled back from step 41"), std::string::npos) << again.message;
}

TEST(LossGuardPolicy, RollbackStopsForAnEarlierFailureToo) {
  LossGuard guard(policy(NonfinitePolicy::rollback));
  EXPECT_EQ(guard.check(40, kNan, 1.0).action, StepAction::rollback);
  EXPECT_EQ(guard.check(35, kNan, 1.0).action, StepAction::stop);
}

TEST(LossGuardSpike, AHundredfoldLossIsReportedButApplied) {
  LossGuard guard(policy(NonfinitePolicy::stop));
  run_calm(guard, 0, 200);
  const auto verdict = guard.check(200, 300.0, 1.0);
  EXPECT_TRUE(verdict.spike);
  EXPECT_FALSE(verdict.nonfinite);
  EXPECT_EQ(verdict.action, StepAction::apply);
  ASSERT_TRUE(verdict.loss_zscore.has_value());
  EXPECT_GT(*verdict.loss_zscore, 1000);
  EXPECT_NE(verdict.message.find("step 200: spike: loss 300.0000"), std::string::npos) << verdict.message;
}

TEST(LossGuardSpike, TheGradientNormAloneIsEnough) {
  LossGuard guard(policy(NonfinitePolicy::stop));
  run_calm(guard, 0, 50);
  EXPECT_TRUE(guard.check(50, 3.0, 40.0).spike);
}

TEST(LossGuardSpike, AFallIsNone) {
  LossGuard guard(policy(NonfinitePolicy::stop));
  run_calm(guard, 0, 50);
  const auto verdict = guard.check(50, 0.5, 0.01);
  EXPECT_FALSE(verdict.spike);
  EXPECT_LT(*verdict.loss_zscore, -6);
}

TEST(LossGuardSpike, NonFiniteValuesDoNotEnterTheWindow) {
  LossGuard clean(policy(NonfinitePolicy::skip, 1000)), poisoned(policy(NonfinitePolicy::skip, 1000));
  for (std::int64_t step = 0; step < 60; ++step) {
    const auto expected = clean.check(step, calm(step), 1.0);
    EXPECT_FALSE(poisoned.check(step, kNan, 1.0).loss_zscore.has_value());
    (void)poisoned.check(step, calm(step), kInf);
    const auto got = poisoned.check(step, calm(step), 1.0);
    EXPECT_EQ(got.loss_zscore, expected.loss_zscore) << step;
  }
  EXPECT_TRUE(poisoned.check(60, 300.0, 1.0).spike);
}

TEST(LossGuardSpike, OneSpikeDoesNotHideTheNext) {
  LossGuard guard(policy(NonfinitePolicy::stop));
  run_calm(guard, 0, 128);
  EXPECT_TRUE(guard.check(128, 300.0, 1.0).spike);
  EXPECT_TRUE(guard.check(129, 300.0, 1.0).spike);
}

TEST(LossGuardSpike, ALastingChangeOfLevelBecomesNormal) {
  LossGuard guard(policy(NonfinitePolicy::stop));
  run_calm(guard, 0, 128);
  int spikes = 0;
  for (std::int64_t step = 128; step < 128 + 40; ++step) spikes += guard.check(step, 3.6, 1.0).spike ? 1 : 0;
  EXPECT_GT(spikes, 0);
  EXPECT_LT(spikes, 20);
  EXPECT_FALSE(guard.check(168, 3.6, 1.0).spike);
}

TEST(LossGuardSpike, ThereIsNoScoreBeforeEnoughSamplesNorForAConstantLoss) {
  LossGuard guard(policy(NonfinitePolicy::stop));
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(guard.check(i, 2.0, 1.0).loss_zscore.has_value()) << i;
  const auto same = guard.check(20, 2.0, 1.0);
  ASSERT_TRUE(same.loss_zscore.has_value());
  EXPECT_EQ(*same.loss_zscore, 0.0);
  EXPECT_FALSE(guard.check(21, 2.0 + 1e-5, 1.0).spike);
}

TEST(LossGuardState, ARestoredGuardGoesOnBitForBit) {
  LossGuard original(policy(NonfinitePolicy::skip, 5));
  run_calm(original, 0, 77);
  (void)original.check(77, kNan, 1.0);
  (void)original.check(78, kNan, 1.0);
  LossGuard restored(policy(NonfinitePolicy::skip, 5));
  restored.restore(Json::parse(original.state().dump()));
  EXPECT_EQ(restored.consecutive_skips(), 2);
  EXPECT_EQ(restored.skipped_steps(), 2);
  for (std::int64_t step = 79; step < 300; ++step) {
    const double loss = step % 50 == 0 ? 30.0 : step % 31 == 0 ? kNan : calm(step);
    const auto a = original.check(step, loss, 1.0), b = restored.check(step, loss, 1.0);
    EXPECT_EQ(a.action, b.action);
    EXPECT_EQ(a.loss_zscore, b.loss_zscore);
    EXPECT_EQ(a.spike, b.spike);
  }
}

TEST(LossGuardState, DamagedStateIsRefused) {
  LossGuard guard(policy(NonfinitePolicy::skip));
  EXPECT_THROW(guard.restore(Json::object()), Error);
  EXPECT_THROW(
      guard.restore(Json::parse(R"({"losses":[null],"grad_norms":[1],"consecutive_skips":0,"skipped_steps":0})")),
      Error);
  EXPECT_THROW(
      guard.restore(Json::parse(R"({"losses":[1,2],"grad_norms":[1],"consecutive_skips":0,"skipped_steps":0})")),
      Error);
  EXPECT_THROW(guard.restore(Json::parse(R"({"losses":[],"grad_norms":[],"consecutive_skips":-1,"skipped_steps":0})")),
               Error);
  EXPECT_EQ(guard.skipped_steps(), 0);
}

TEST(LossGuardState, AShorterWindowKeepsTheNewest) {
  LossGuard original(policy(NonfinitePolicy::skip));
  run_calm(original, 0, 100);
  auto options = policy(NonfinitePolicy::skip);
  options.window = 30;
  LossGuard shorter(options), fresh(options);
  shorter.restore(original.state());
  run_calm(fresh, 0, 100);
  EXPECT_EQ(shorter.state(), fresh.state());
}

TEST(LossGuardOptions, ImpossibleValuesAreRefused) {
  LossGuardOptions options;
  options.max_consecutive_skips = -1;
  EXPECT_THROW(LossGuard{options}, Error);
  options = {};
  options.min_samples = options.window + 1;
  EXPECT_THROW(LossGuard{options}, Error);
  options = {};
  options.spike_zscore = kNan;
  EXPECT_THROW(LossGuard{options}, Error);
}

}  // namespace
}  // namespace quench
