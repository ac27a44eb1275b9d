#include "core/number/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/core/number/special_floats.h"

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

TEST(StochasticRounding, MovesWhenDrawAndFractionCarry) {
  const auto value = std::bit_cast<float>(0x3F801234u);
  EXPECT_EQ(stochastic_round_bf16(value, 0x10000 - 0x1234).bits, 0x3F81);
  EXPECT_EQ(stochastic_round_bf16(value, 0x10000 - 0x1235).bits, 0x3F80);
}

TEST(StochasticRounding, CarriesIntoTheExponentAndToInfinity) {
  EXPECT_EQ(stochastic_round_bf16(std::bit_cast<float>(0x3FFFFFFFu), 0xFFFF).bits, 0x4000);
  EXPECT_EQ(stochastic_round_bf16(std::bit_cast<float>(0xFF7FFFFFu), 0xFFFF).bits, 0xFF80);
  EXPECT_EQ(stochastic_round_bf16(std::bit_cast<float>(0x7F7FFFFFu), 0).bits, 0x7F7F);
}

TEST(StochasticRounding, SpecialValuesStay) {
  using testing::kInf;
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

TEST(StochasticRounding, EightElementsShareABlock) {
  const RandomKey key{3, hash64("weight"), 12};
  const auto value = std::bit_cast<float>(0x3F808000u);  // moves where the upper bit of the draw is set
  for (const std::uint64_t block : {0ull, 1ull, 77ull, 1ull << 32, (1ull << 40) + 5}) {
    const PhiloxBlock words = random_block(key, block);
    for (std::uint64_t i = 0; i < 8; ++i) {
      const std::uint32_t bits = i % 2 == 0 ? words[i / 2] & 0xFFFFu : words[i / 2] >> 16;
      EXPECT_EQ(rounding_bits(words, 8 * block + i), bits);
      EXPECT_EQ(stochastic_round_bf16(value, key, 8 * block + i).bits, 0x3F80 + (bits >> 15)) << block << " " << i;
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

// Number of standard deviations that the mean of `sequence`, numbers with mean 0 and variance 1, is from 0.
double deviations(const std::vector<double>& sequence) {
  return std::accumulate(sequence.begin(), sequence.end(), 0.0) / std::sqrt(static_cast<double>(sequence.size()));
}

// The products of neighbours at a distance: mean 0 and variance 1 as well if they are independent.
std::vector<double> lagged(const std::vector<double>& sequence, std::size_t lag) {
  std::vector<double> result;
  for (std::size_t i = lag; i < sequence.size(); ++i) result.push_back(sequence[i] * sequence[i - lag]);
  return result;
}

// Every second one.
std::vector<double> every_other(const std::vector<double>& sequence, std::size_t first) {
  std::vector<double> result;
  for (std::size_t i = first; i < sequence.size(); i += 2) result.push_back(sequence[i]);
  return result;
}

constexpr double kLimit = 5;  // standard deviations: chance is beyond it in one check of 1.7 million

// Bits of the lower and of the upper halves: each as often 0 as 1, and no bit of one half tells one of the other.
TEST(StochasticRounding, BitsOfTheHalvesOfAWordAreBalancedAndIndependent) {
  constexpr std::size_t kWords = 1 << 16;
  const RandomKey key{11, hash64("halves"), 5};
  std::vector<std::vector<double>> bits(32, std::vector<double>(kWords));
  for (std::size_t w = 0; w < kWords; ++w) {
    const PhiloxBlock block = random_block(key, w / 4);
    for (std::uint64_t half = 0; half < 2; ++half) {
      const std::uint32_t draw = rounding_bits(block, 2 * (w % 4) + half);
      ASSERT_LT(draw, 65536u);
      for (std::size_t bit = 0; bit < 16; ++bit) bits[16 * half + bit][w] = (draw >> bit & 1u) != 0 ? 1.0 : -1.0;
    }
  }
  const auto product = [&](std::size_t a, std::size_t b) {
    return std::inner_product(bits[a].begin(), bits[a].end(), bits[b].begin(), 0.0) / std::sqrt(double{kWords});
  };
  for (std::size_t a = 0; a < 32; ++a) {
    EXPECT_LT(std::abs(deviations(bits[a])), kLimit) << "bit " << a;
    EXPECT_EQ(product(a, a), std::sqrt(double{kWords}));  // what equal bits give
    for (std::size_t b = 0; b < a; ++b) EXPECT_LT(std::abs(product(a, b)), kLimit) << "bits " << a << " and " << b;
  }
}

// What is rounded away from zero among neighbours: as often as it should be for even and for odd elements, and
// independent at every distance up to two blocks.
TEST(StochasticRounding, NeighboursRoundIndependently) {
  constexpr std::size_t kCount = 1 << 19;
  const RandomKey key{21, hash64("neighbours"), 8};
  for (const std::uint32_t dropped : {0x0100u, 0x2000u, 0x8000u, 0xC123u}) {
    const auto value = std::bit_cast<float>(0x3F800000u | dropped);
    const double p = dropped / 65536.0, scale = 1 / std::sqrt(p * (1 - p));
    std::vector<double> outcomes(kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      outcomes[i] = ((stochastic_round_bf16(value, key, i).bits == 0x3F81 ? 1 : 0) - p) * scale;
    for (const std::size_t parity : {0u, 1u})
      EXPECT_LT(std::abs(deviations(every_other(outcomes, parity))), kLimit) << dropped << " parity " << parity;
    for (std::size_t lag = 1; lag <= 16; ++lag) {
      const std::vector<double> products = lagged(outcomes, lag);
      for (const std::size_t parity : {0u, 1u})
        EXPECT_LT(std::abs(deviations(every_other(products, parity))), kLimit) << dropped << " lag " << lag;
    }
    // The check would see neighbours that take the same half of a word.
    for (std::size_t i = 0; i < kCount; i += 2) outcomes[i + 1] = outcomes[i];
    EXPECT_GT(deviations(every_other(lagged(outcomes, 1), 0)), 10 * kLimit);
  }
}

}  // namespace
}  // namespace quench
