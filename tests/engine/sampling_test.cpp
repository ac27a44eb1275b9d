#include "engine/sampling.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quench {
namespace {

const std::vector<float> kLogits{2, 1.5f, 1, 0.5f, 0, -0.5f, -1, -2};

std::vector<double> shares(const std::vector<std::int32_t>& seen, const SamplingOptions& options) {
  constexpr int kDraws = 20000;
  std::vector<double> share(kLogits.size());
  for (int position = 0; position < kDraws; ++position)
    share[static_cast<std::size_t>(sample_token(kLogits, seen, options, position))] += 1.0 / kDraws;
  return share;
}

// Probabilities of Transformers' processors in its order: RepetitionPenalty, Temperature, TopK, TopP, MinP.
TEST(SampleToken, DrawsTransformersDistribution) {
  const struct {
    std::vector<std::int32_t> seen;
    SamplingOptions options;
    std::vector<double> expected;
  } cases[] = {
      {{}, {.temperature = 1}, {0.4027, 0.2443, 0.1482, 0.0899, 0.0545, 0.0331, 0.0201, 0.0074}},
      {{}, {.temperature = 0.5, .top_k = 3}, {0.6652, 0.2447, 0.09, 0, 0, 0, 0, 0}},
      {{}, {.temperature = 2, .top_p = 0.6}, {0.4192, 0.3265, 0.2543, 0, 0, 0, 0, 0}},
      {{}, {.temperature = 1, .min_p = 0.3}, {0.5065, 0.3072, 0.1863, 0, 0, 0, 0, 0}},
      {{}, {.temperature = 2, .min_p = 0.3}, {0.31, 0.2414, 0.188, 0.1464, 0.1141, 0, 0, 0}},
      {{}, {.temperature = 1, .top_k = 4, .top_p = 0.8, .min_p = 0.2}, {0.5065, 0.3072, 0.1863, 0, 0, 0, 0, 0}},
      {{0, 7},
       {.temperature = 0.7, .top_p = 0.9, .min_p = 0.1, .repetition_penalty = 2},
       {0.2206, 0.4507, 0.2206, 0.108, 0, 0, 0, 0}},
  };
  for (const auto& one : cases) {
    const std::vector<double> share = shares(one.seen, one.options);
    for (std::size_t i = 0; i < share.size(); ++i) {
      EXPECT_NEAR(share[i], one.expected[i], 0.015) << i;
      EXPECT_EQ(share[i] == 0, one.expected[i] == 0) << i;
    }
  }
}

// Temperatures for which a logit divided by them is no finite number.
TEST(SampleToken, TheSmallestTemperaturesAreGreedy) {
  for (const double temperature : {1e-3, 1e-38, 1e-40, 1e-310}) {
    const std::vector<double> share = shares({}, {.temperature = temperature});
    EXPECT_NEAR(share[0], 1, 1e-9) << temperature;
  }
  const std::vector<double> share = shares({0}, {.temperature = 1, .repetition_penalty = 1e-310});
  EXPECT_NEAR(share[0], 1, 1e-9);
}

}  // namespace
}  // namespace quench
