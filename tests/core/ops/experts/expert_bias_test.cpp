#include "core/ops/experts/expert_bias.h"

#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

Tensor floats(std::vector<float> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return Tensor::from_values<float>({count}, values);
}

TEST(ExpertBias, MovesTowardsEvenLoads) {
  const Tensor counts = floats({10, 0, 4, 2}), bias = floats({0.5f, 0.0f, -1.0f, 0.25f});
  update_expert_bias({.counts = counts, .bias = bias, .speed = 0.125f});
  EXPECT_EQ(values(bias), (std::vector<double>{0.375, 0.125, -1.0, 0.375}));
}

TEST(ExpertBias, APartOfTheExpertsMovesByTheMeanOfAll) {
  const Tensor counts = floats({10, 0, 4, 2}), bias = floats({0.0f, 0.0f});
  update_expert_bias({.counts = counts, .bias = bias, .first = 1, .speed = 0.5f});
  EXPECT_EQ(values(bias), (std::vector<double>{0.5, 0.0}));
  update_expert_bias({.counts = counts, .bias = Tensor::empty({0}, DType::f32), .first = 4, .speed = 0.5f});
}

TEST(ExpertBias, WrongOperandsAreRefused) {
  const Tensor counts = floats({1, 2}), bias = floats({0, 0});
  EXPECT_THROW(update_expert_bias({.counts = counts, .bias = bias, .first = 1}), Error);
  EXPECT_THROW(update_expert_bias({.counts = counts, .bias = Tensor::zeros({2}, DType::bf16)}), Error);
  EXPECT_THROW(update_expert_bias({.counts = Tensor::zeros({2, 2}, DType::f32), .bias = bias}), Error);
}

}  // namespace
}  // namespace quench
