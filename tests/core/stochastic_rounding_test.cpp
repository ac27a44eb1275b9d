#include "core/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/check.h"

namespace quench {
namespace {

// All 65536 draws: the value moves away from zero exactly as often as its dropped bits say.
TEST(StochasticRounding, ProbabilityIsTheDroppedFraction) {
  for (const std::uint32_t dropped : {0x0000u, 0x0001u, 0x4321u, 0x8000u, 0xFFFFu}) {
    for (const std::uint32_t upper : {0x3F800000u, 0xC1230000u, 0x00000000u, 0x80010000u}) {
      const auto value = std::bit_cast<float>(upper | dropped);
      std::uint32_t away = 0;
      for (std::uint32_t random = 0; random < 65536; ++random) {
        const std::uint32_t bits = stochastic_round_bf16(value, random).bits;
        ASSERT_TRUE(bits == upper >> 16 || bits == (upper >> 16) + 1);
        away += bits != upper >> 16;
      }
      EXPECT_EQ(away, dropped) << upper;
    }
  }
}

TEST(StochasticRounding, MovesWhenTheDrawIsBelowTheFraction) {
  const auto value = std::bit_cast<float>(0x3F801234u);
  EXPECT_EQ(stochastic_round_bf16(value, 0x1233).bits, 0x3F81);
  EXPECT_EQ(stochastic_round_bf16(value, 0x1234).bits, 0x3F80);
}

TEST(StochasticRounding, CarriesIntoTheExponentAndToInfinity) {
  EXPECT_EQ(stochastic_round_bf16(std::bit_cast<float>(0x3FFFFFFFu), 0).bits, 0x4000);
  EXPECT_EQ(stochastic_round_bf16(std::bit_cast<float>(0xFF7FFFFFu), 0).bits, 0xFF80);
  EXPECT_EQ(stochastic_round_bf16(std::bit_cast<float>(0x7F7FFFFFu), 0xFFFF).bits, 0x7F7F);
}

TEST(StochasticRounding, SpecialValuesStay) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const std::uint32_t random : {0u, 0x8000u, 0xFFFFu}) {
    EXPECT_EQ(stochastic_round_bf16(kInf, random).bits, 0x7F80);
    EXPECT_EQ(stochastic_round_bf16(-kInf, random).bits, 0xFF80);
    EXPECT_EQ(stochastic_round_bf16(-0.0f, random).bits, 0x8000);
    for (const std::uint32_t word : {0x7F800001u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
      const bfloat16 rounded = stochastic_round_bf16(std::bit_cast<float>(word), random);
      EXPECT_TRUE(std::isnan(static_cast<float>(rounded))) << word;
      EXPECT_EQ(rounded.bits >> 15, word >> 31);
    }
  }
}

TEST(StochasticRounding, SameBitsHoweverTheRangeIsCut) {
  constexpr std::size_t kCount = 103;
  const RandomKey key{42, hash64("layers.0.mlp.up_proj.weight"), 17};
  std::vector<float> values(kCount);
  fill_random_normal(RandomKey{1, 2, 3}, 0, values);
  for (const std::uint64_t first : {0ull, 1ull, 6ull, 1ull << 40}) {
    std::vector<std::uint16_t> expected;
    for (std::size_t i = 0; i < kCount; ++i) expected.push_back(stochastic_round_bf16(values[i], key, first + i).bits);
    for (const std::size_t cut : {0u, 1u, 2u, 3u, 50u, 102u, 103u}) {
      std::vector<bfloat16> out(kCount);
      const std::span<const float> in(values);
      stochastic_round_bf16(in.first(cut), std::span(out).first(cut), key, first);
      stochastic_round_bf16(in.subspan(cut), std::span(out).subspan(cut), key, first + cut);
      for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(out[i].bits, expected[i]) << first << " cut " << cut;
    }
  }
}

TEST(StochasticRounding, IsUnbiasedOverElementsAndSteps) {
  const float value = 1.0f + 0x1p-10f;  // an eighth of a bf16 ulp above 1
  double sum = 0;
  constexpr int kCount = 80000;
  for (std::uint64_t i = 0; i < kCount; ++i)
    sum += static_cast<float>(stochastic_round_bf16(value, RandomKey{1, 2, i / 1000}, i % 1000)) - 1.0;
  const double deviation = 0x1p-7 * std::sqrt(0.125 * 0.875 / kCount);
  EXPECT_NEAR(sum / kCount, 0x1p-10, 5 * deviation);
}

TEST(StochasticRounding, RejectsSpansOfDifferentLength) {
  std::vector<float> in(3);
  std::vector<bfloat16> out(2);
  EXPECT_THROW(stochastic_round_bf16(in, out, RandomKey{}, 0), Error);
}

}  // namespace
}  // namespace quench
