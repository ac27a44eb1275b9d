#include "core/ops/sampling/sample_tokens.h"

#include "core/number/sampling_weight.h"
#include "tests/core/ops/sampling/sampling_cases.h"

namespace quench {
namespace {

using testing::Generator;
using testing::make_sampling;
using testing::SamplingProblem;

constexpr float kLog2E = std::numbers::log2e_v<float>;

SampledRow sample(const std::vector<float>& logits, SamplingRow row) {
  const SamplingProblem p =
      make_sampling(Tensor::from_values<float>({1, static_cast<std::int64_t>(logits.size())}, logits), false);
  p.row(0) = row;
  sample_tokens(p.args());
  EXPECT_EQ(p.result(0).token, *p.tokens.data<std::int32_t>());
  return p.result(0);
}

TEST(SamplingWeight, IsExpToAnUlp) {
  for (int i = 0; i < 4000; ++i) {
    const float x = -static_cast<float>(i) / 170.0f;
    const double exact = std::exp(static_cast<double>(x)) * static_cast<double>(kUnitWeight);
    EXPECT_NEAR(static_cast<double>(sampling_weight(x, 0, kLog2E)), exact, 1 + exact * 3e-6) << x;
  }
  EXPECT_EQ(sampling_weight(5, 5, 1e30f), kUnitWeight);
  EXPECT_EQ(sampling_weight(-3e38f, 3e38f, kLog2E), 0u);
}

TEST(SampleTokens, LogprobIsLogSoftmaxWhateverTheOptions) {
  Generator random(1);
  const Tensor logits = random.normal({3, 5000}, DType::f32, 3);
  const SamplingProblem p = make_sampling(logits, false);
  for (std::int64_t i = 0; i < 3; ++i) {
    p.row(i).scale = i == 0 ? 0 : kLog2E / 2;
    p.row(i).top_k = 40;
    p.row(i).uniform = 0x7000000000000000u;
  }
  sample_tokens(p.args());
  for (std::int64_t i = 0; i < 3; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < 5000; ++j) sum += std::exp(static_cast<double>(logits.data<float>()[i * 5000 + j]));
    const double exact = static_cast<double>(logits.data<float>()[i * 5000 + p.result(i).token]) - std::log(sum);
    EXPECT_NEAR(logprob_of(p.result(i)), exact, 2e-6);
  }
}

TEST(SampleTokens, ForbiddenTokensAreNeverDrawnAndCountInTheProbability) {
  Generator random(3);
  const Tensor logits = random.normal({1, 200}, DType::f32, 3);
  double sum = 0;
  for (std::int64_t j = 0; j < 200; ++j) sum += std::exp(static_cast<double>(logits.data<float>()[j]));
  for (int trial = 0; trial < 300; ++trial) {
    SamplingProblem p = make_sampling(logits, trial % 2 == 0);
    p.allowed = testing::random_allowed(random, 1, 200);
    p.row(0).scale = trial % 3 == 0 ? 0 : kLog2E;
    p.row(0).top_k = trial % 5 == 0 ? 3 : 0;
    p.row(0).top_p = trial % 7 == 0 ? 0.5f : 1;
    p.row(0).penalty = 1.5f;
    p.row(0).uniform = static_cast<std::uint64_t>(random.below(std::int64_t{1} << 62)) * 4;
    sample_tokens(p.args());
    const std::int32_t token = p.result(0).token;
    const auto* words = p.allowed.data<std::int32_t>();
    EXPECT_NE(static_cast<std::uint32_t>(words[token / 32]) >> token % 32 & 1u, 0u) << trial;
    EXPECT_NEAR(logprob_of(p.result(0)), static_cast<double>(logits.data<float>()[token]) - std::log(sum), 2e-6);
    if (p.row(0).scale != 0 || p.seen.defined()) continue;
    for (std::int64_t j = 0; j < 200; ++j) {
      if ((static_cast<std::uint32_t>(words[j / 32]) >> j % 32 & 1u) != 0) {
        EXPECT_LE(logits.data<float>()[j], logits.data<float>()[token]) << trial;
      }
    }
  }
}

TEST(SampleTokens, TheDrawWalksTheKeptTokensInTheirOrder) {
  const std::vector<float> logits{0, 3, 3, 1, 3};
  const auto drawn = [&](SamplingRow row, double at) {
    row.scale = kLog2E;
    row.uniform = static_cast<std::uint64_t>(at * 0x1p64);
    return sample(logits, row).token;
  };
  EXPECT_EQ(drawn({}, 0), 0);
  EXPECT_EQ(drawn({}, 0.999), 4);
  // The first of equal tokens are kept.
  EXPECT_EQ(drawn({.top_k = 2}, 0.1), 1);
  EXPECT_EQ(drawn({.top_k = 2}, 0.9), 2);
  EXPECT_EQ(drawn({.top_p = 0.3f}, 0.999), 1);
  EXPECT_EQ(drawn({.top_p = 0.4f}, 0.999), 2);
  EXPECT_EQ(drawn({.min_p = 0.5f}, 0.0), 1);
  EXPECT_EQ(drawn({.min_p = 1}, 0.999), 4);
}

TEST(SampleTokens, SeenTokensArePenalizedAndRemembered) {
  const SamplingProblem p =
      make_sampling(Tensor::from_values<float>({2, 3}, std::vector<float>{4, 3, 2, -1, -2, -3}), true);
  for (std::int64_t i = 0; i < 2; ++i) p.row(i).penalty = 4;
  const auto next = [&] {
    sample_tokens(p.args());
    return std::pair(p.result(0).token, p.result(1).token);
  };
  EXPECT_EQ(next(), std::pair(0, 0));
  EXPECT_EQ(next(), std::pair(1, 1));
  EXPECT_EQ(next(), std::pair(2, 2));
  EXPECT_EQ(next(), std::pair(0, 0));  // all are seen
}

TEST(SampleTokens, TheFirstNonFiniteLogitIsNamed) {
  EXPECT_EQ(sample({1, NAN, INFINITY}, {}).first_nonfinite, 1);
  EXPECT_EQ(sample({1, 2, -INFINITY}, {.scale = 1}).first_nonfinite, 2);
  EXPECT_EQ(sample({1, 2, 3}, {}).first_nonfinite, -1);
}

TEST(SampleTokens, ARowDoesNotDependOnOthers) {
  Generator random(5);
  for (int trial = 0; trial < 20; ++trial) {
    const SamplingProblem p = testing::random_sampling(random);
    const Tensor seen = p.seen.defined() ? p.seen.clone() : Tensor();
    sample_tokens(p.args());
    for (std::int64_t i = 0; i < p.logits.size(0); ++i) {
      SamplingProblem one = make_sampling(p.logits.narrow(0, i, 1).clone(), p.seen.defined());
      one.row(0) = p.row(i);
      one.row(0).to = 0;
      if (seen.defined()) one.seen.copy_from(seen.narrow(0, p.row(i).to, 1).clone());
      if (p.allowed.defined()) one.allowed = p.allowed.narrow(0, p.row(i).to, 1).clone();
      sample_tokens(one.args());
      EXPECT_EQ(std::memcmp(&one.result(0), &p.result(i), sizeof(SampledRow)), 0);
    }
  }
}

}  // namespace
}  // namespace quench
