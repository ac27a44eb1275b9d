#include "core/ops/loss/answer_loss_names.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quench {
namespace {

const AnswerLossOptions kPairLosses[] = {
    {.loss = AnswerLoss::dpo, .beta = 0.3},
    {.loss = AnswerLoss::dpo, .beta = 0.3, .label_smoothing = 0.2},
    {.loss = AnswerLoss::dpo, .beta = 2, .length_normalization = true},
    {.loss = AnswerLoss::ipo, .beta = 0.2},
    {.loss = AnswerLoss::simpo, .beta = 2, .simpo_margin = 0.7},
    {.loss = AnswerLoss::simpo, .beta = 2, .label_smoothing = 0.1},
    {.loss = AnswerLoss::orpo, .beta = 0.4},
};

constexpr AnswerScore kChosen{.logp = -7.5, .reference = -8.25, .tokens = 5};
constexpr AnswerScore kRejected{.logp = -4.5, .reference = -4.0, .tokens = 3};

AnswerScore moved(AnswerScore score, double by) {
  score.logp += by;
  return score;
}

TEST(AnswerLoss, DerivativesAreThoseOfTheLoss) {
  constexpr double kStep = 1e-6;
  for (const AnswerLossOptions& options : kPairLosses) {
    const PairLoss loss = pair_loss(options, kChosen, kRejected);
    const auto at = [&](double chosen, double rejected) {
      return pair_loss(options, moved(kChosen, chosen), moved(kRejected, rejected)).loss;
    };
    EXPECT_NEAR(loss.d_chosen, (at(kStep, 0) - at(-kStep, 0)) / (2 * kStep), 1e-8) << enum_name(options.loss);
    EXPECT_NEAR(loss.d_rejected, (at(0, kStep) - at(0, -kStep)) / (2 * kStep), 1e-8) << enum_name(options.loss);
  }
  const AnswerLossOptions kto{.loss = AnswerLoss::kto, .beta = 0.4, .desirable_weight = 1.3, .undesirable_weight = 0.6};
  for (const bool desirable : {true, false}) {
    const auto at = [&](double by) { return label_loss(kto, moved(kChosen, by), desirable, 0.3).loss; };
    EXPECT_NEAR(label_loss(kto, kChosen, desirable, 0.3).d_logp, (at(kStep) - at(-kStep)) / (2 * kStep), 1e-8);
  }
}

TEST(AnswerLoss, KnownValues) {
  // Equal to the reference: no reward.
  const AnswerScore same{.logp = -3, .reference = -3, .tokens = 2};
  const PairLoss dpo = pair_loss({.loss = AnswerLoss::dpo, .beta = 0.1}, same, same);
  EXPECT_DOUBLE_EQ(dpo.loss, std::log(2.0));
  EXPECT_DOUBLE_EQ(dpo.d_chosen, -0.05);
  EXPECT_DOUBLE_EQ(dpo.d_rejected, 0.05);
  EXPECT_EQ(dpo.chosen_reward, 0);
  EXPECT_DOUBLE_EQ(pair_loss({.loss = AnswerLoss::ipo, .beta = 0.1}, same, same).loss, 25);
  EXPECT_DOUBLE_EQ(label_loss({.loss = AnswerLoss::kto}, same, true, 0).loss, 0.5);
  EXPECT_DOUBLE_EQ(label_loss({.loss = AnswerLoss::kto, .undesirable_weight = 3}, same, false, 0).loss, 1.5);
  EXPECT_EQ(kto_divergence(-4, 2), 0);  // clamped
  EXPECT_EQ(kto_divergence(4, 2), 2);
  EXPECT_EQ(kto_divergence(0, 0), 0);
}

TEST(AnswerLoss, FarFromZeroNothingOverflows) {
  for (const double margin : {1e4, -1e4})
    for (const AnswerLossOptions& options : kPairLosses) {
      const AnswerScore chosen{.logp = -2e4 + margin, .reference = -2e4, .tokens = 10};
      const AnswerScore rejected{.logp = -2e4, .reference = -2e4, .tokens = 10};
      const PairLoss loss = pair_loss(options, chosen, rejected);
      EXPECT_TRUE(std::isfinite(loss.loss)) << enum_name(options.loss);
      EXPECT_TRUE(std::isfinite(loss.d_chosen) && std::isfinite(loss.d_rejected)) << enum_name(options.loss);
    }
}

}  // namespace
}  // namespace quench
