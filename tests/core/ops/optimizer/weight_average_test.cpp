#include "core/ops/optimizer/weight_average.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "core/number/stochastic_rounding.h"
#include "core/ops/optimizer/adamw.h"
#include "tests/core/ops/golden_file.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {
namespace {

// a + (1 - decay) (p - a) in f32, rounded once by the fused multiply-add.
float averaged(float average, float param, double decay) {
  return std::fma(static_cast<float>(1 - decay), param - average, average);
}

TEST(AverageWeights, F32FollowsTheFormulaBitForBit) {
  Generator random(1);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t n : {1, 37, 20000}) {
      AveragedTensor t{.param = random.normal({n}, dtype), .average = random.normal({n}, DType::f32)};
      const std::vector<double> before = values(t.average);
      average_weights({.tensors = {&t, 1}, .decay = 0.9});
      for (std::int64_t i = 0; i < n; ++i)
        ASSERT_EQ(t.average.data<float>()[i], averaged(static_cast<float>(before[static_cast<std::size_t>(i)]),
                                                       static_cast<float>(get_element(t.param, i)), 0.9))
            << i;
    }
}

// Random bits are those of the seed, the stream, the step and the global element.
TEST(AverageWeights, Bf16IsTheF32ValueStochasticallyRounded) {
  Generator random(2);
  constexpr std::int64_t kElements = 20000, kOffset = 13;
  AveragedTensor t{.param = random.normal({kElements}, DType::f32),
                   .average = random.normal({kElements}, DType::bf16),
                   .random_stream = 77,
                   .element_offset = kOffset};
  const std::vector<double> before = values(t.average);
  average_weights({.tensors = {&t, 1}, .decay = 0.999, .step = 5, .seed = 3});
  const RandomKey key{3, 77, random_step(5, AdamWRounding::param)};
  for (std::int64_t i = 0; i < kElements; ++i) {
    const float exact =
        averaged(static_cast<float>(before[static_cast<std::size_t>(i)]), t.param.data<float>()[i], 0.999);
    ASSERT_EQ(t.average.data<bfloat16>()[i].bits,
              stochastic_round_bf16(exact, key, static_cast<std::uint64_t>(kOffset + i)).bits)
        << i;
  }
}

TEST(AverageWeights, ShardedAverageRoundsLikeUnsharded) {
  Generator random(3);
  AveragedTensor whole{
      .param = random.normal({1000}, DType::bf16), .average = random.normal({1000}, DType::bf16), .random_stream = 5};
  const Tensor copy = whole.average.clone();
  std::vector<AveragedTensor> shards;
  for (const auto& [begin, n] : {std::pair{0, 37}, std::pair{37, 963}})
    shards.push_back({.param = whole.param.narrow(0, begin, n),
                      .average = copy.narrow(0, begin, n),
                      .random_stream = 5,
                      .element_offset = begin});
  average_weights({.tensors = {&whole, 1}, .step = 2});
  average_weights({.tensors = shards, .step = 2});
  EXPECT_EQ(values(copy), values(whole.average));
}

// With a decay of 0.999 each update is far below half an ulp of bf16: rounding to nearest would stay at the start.
TEST(AverageWeights, Bf16FollowsTheF32AverageOnTheMean) {
  constexpr std::int64_t kElements = 1 << 16;
  constexpr int kSteps = 500;
  for (const double decay : {0.999, 0.9999}) {
    const Tensor param = Tensor::empty({kElements}, DType::f32), average = Tensor::empty({kElements}, DType::bf16);
    std::fill_n(param.data<float>(), kElements, 1.25f);
    std::fill_n(average.data<bfloat16>(), kElements, bfloat16(1.0f));
    AveragedTensor t{.param = param, .average = average, .random_stream = 9};
    for (int step = 1; step <= kSteps; ++step) average_weights({.tensors = {&t, 1}, .decay = decay, .step = step});
    const double expected = 1.25 - 0.25 * std::pow(decay, kSteps);
    double sum = 0;
    for (std::int64_t i = 0; i < kElements; ++i) sum += get_element(average, i);
    // An update by share of an ulp p has variance p (1 - p) ulp^2; 65,536 elements; ten standard deviations.
    EXPECT_NEAR(sum / static_cast<double>(kElements), expected, 10 * 0x1p-7 * std::sqrt(0.25 * kSteps / kElements));
    EXPECT_GT(expected - 1, decay > 0.9995 ? 0.01 : 0.09);
    EXPECT_EQ(bfloat16(averaged(1.0f, 1.25f, decay)).bits, bfloat16(1.0f).bits) << "nearest would move";
  }
}

// No noise where the average has arrived.
TEST(AverageWeights, EqualWeightsStay) {
  Generator random(4);
  AveragedTensor t{.param = random.normal({5000}, DType::bf16)};
  t.average = t.param.clone();
  for (int step = 1; step <= 20; ++step) average_weights({.tensors = {&t, 1}, .step = step});
  EXPECT_EQ(values(t.average), values(t.param));
}

TEST(AverageWeights, NonFiniteWeightsAreSeen) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor param = Tensor::from_values<float>({3}, std::array{1.0f, INFINITY, NAN});
    AveragedTensor t{.param = param, .average = Tensor::zeros({3}, dtype)};
    average_weights({.tensors = {&t, 1}});
    EXPECT_TRUE(std::isfinite(get_element(t.average, 0)));
    EXPECT_TRUE(std::isinf(get_element(t.average, 1)));
    EXPECT_TRUE(std::isnan(get_element(t.average, 2)));
  }
}

TEST(AverageWeights, BadArgumentsAreNamed) {
  const Tensor x = Tensor::zeros({4}, DType::f32);
  const auto refused = [](AveragedTensor t, double decay, std::int64_t step) -> std::string {
    try {
      average_weights({.tensors = {&t, 1}, .decay = decay, .step = step});
    } catch (const Error& error) {
      return error.what();
    }
    return "not refused";
  };
  for (const double decay : {0.0, 1.0, -1.0}) EXPECT_NE(refused({x, x}, decay, 1).find("decay"), std::string::npos);
  EXPECT_NE(refused({x, x}, 0.9, 0).find("step"), std::string::npos);
  EXPECT_NE(refused({x, Tensor::zeros({5}, DType::f32)}, 0.9, 1).find("average is"), std::string::npos);
  EXPECT_NE(refused({x, Tensor::zeros({4}, DType::i32)}, 0.9, 1).find("average is"), std::string::npos);
}

}  // namespace
}  // namespace quench::testing
