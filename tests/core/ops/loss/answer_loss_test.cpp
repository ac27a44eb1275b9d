#include "core/ops/loss/answer_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/ops/loss/answer_batch.h"
#include "tests/seams/refusal.h"

namespace quench {
namespace {

using testing::AnswerBatch;
using testing::AnswerResults;
using testing::run_answers;

// The loss of one row's cross-entropy moved by `by`.
double loss_with(const AnswerBatch& batch, const AnswerLossOptions& options, std::int64_t row, float by) {
  AnswerBatch moved = batch.to(Device{});
  moved.losses = Tensor::empty_like(batch.losses);
  moved.losses.copy_from(batch.losses);
  moved.losses.data<float>()[row] += by;
  return static_cast<double>(*run_answers(moved, options, 1.0f).value.data<float>());
}

TEST(AnswerLoss, FactorsAreTheDerivativesOfTheLossByTheRows) {
  const AnswerBatch batch = AnswerBatch::random(3, 6, 1);
  for (const AnswerLossOptions& options : testing::kAnswerLosses) {
    if (options.loss == AnswerLoss::kto) continue;  // its divergence is a constant in the gradient
    SCOPED_TRACE(enum_name(options.loss));
    const AnswerResults results = run_answers(batch, options, 1.0f);
    constexpr float kStep = 1.0f / 64;
    for (std::int64_t row = 0; row < batch.losses.numel(); ++row) {
      const double slope =
          (loss_with(batch, options, row, kStep) - loss_with(batch, options, row, -kStep)) / (2 * kStep);
      EXPECT_NEAR(results.factors.data<float>()[row], slope, 2e-3 * (1 + std::abs(slope))) << row;
    }
  }
}

TEST(AnswerLoss, SumsTakeTheTargetsOfEachAnswerInFixedOrder) {
  const AnswerBatch batch = AnswerBatch::random(4, 9, 2);
  const Tensor logps = Tensor::empty({8}, DType::f64);
  answer_sums({.rows = {batch.ranges, batch.owners}, .losses = batch.losses, .logps = logps});
  for (std::int32_t answer = 0; answer < 8; ++answer) {
    double sum = 0;
    for (std::int64_t row = 0; row < batch.losses.numel(); ++row)
      if (batch.owners.data<std::int32_t>()[row] == answer) sum -= static_cast<double>(batch.losses.data<float>()[row]);
    EXPECT_EQ(logps.data<double>()[answer], sum);
  }
}

TEST(AnswerLoss, AScaleMultipliesLossMetricsAndFactors) {
  const AnswerBatch batch = AnswerBatch::random(5, 9, 3);
  for (const AnswerLossOptions& options : testing::kAnswerLosses) {
    const AnswerResults one = run_answers(batch, options, 1.0f), half = run_answers(batch, options, 0.5f);
    EXPECT_EQ(*half.value.data<float>(), 0.5f * *one.value.data<float>());
    for (std::int64_t i = 0; i < one.metrics.numel(); ++i)
      EXPECT_EQ(half.metrics.data<float>()[i], 0.5f * one.metrics.data<float>()[i]);
    for (std::int64_t i = 0; i < one.factors.numel(); ++i)
      EXPECT_EQ(half.factors.data<float>()[i], 0.5f * one.factors.data<float>()[i]);
  }
}

TEST(AnswerLoss, NoPairsAreNoLoss) {
  const AnswerBatch batch = AnswerBatch::random(2, 4, 4);
  AnswerBatch none = batch.to(Device{});
  none.pairs = Tensor::empty({0, 2}, DType::i32);
  const AnswerResults results = run_answers(none, {.loss = AnswerLoss::dpo}, 1.0f);
  EXPECT_EQ(*results.value.data<float>(), 0);
  for (std::int64_t i = 0; i < results.factors.numel(); ++i) EXPECT_EQ(results.factors.data<float>()[i], 0);
}

TEST(AnswerLoss, WrongOperandsAreRefusedByName) {
  const AnswerBatch batch = AnswerBatch::random(2, 4, 5);
  const Tensor logps = Tensor::empty({4}, DType::f64);
  EXPECT_THAT(
      testing::refusal([&] {
        answer_sums(
            {.rows = {batch.ranges, batch.owners}, .losses = batch.losses, .logps = Tensor::empty({3}, DType::f64)});
      }),
      ::testing::HasSubstr("answer_sums"));
  EXPECT_THAT(testing::refusal([&] {
                answer_loss({.options = {.loss = AnswerLoss::kto},
                             .logps = logps,
                             .tokens = batch.tokens,
                             .pairs = batch.pairs,
                             .value = Tensor::empty({1}, DType::f32),
                             .derivatives = Tensor::empty({4}, DType::f64)});
              }),
              ::testing::HasSubstr("kto without divergence"));
}

}  // namespace
}  // namespace quench
