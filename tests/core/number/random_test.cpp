#include "core/number/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace quench {
namespace {

// The published known answers of Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, ~0u, ~0u), (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// FNV-1a's published values: changing them would change every stream of existing runs.
TEST(Random, Hash64IsFnv1a) {
  EXPECT_EQ(hash64(""), 0xcbf29ce484222325ull);
  EXPECT_EQ(hash64("a"), 0xaf63dc4c8601ec8cull);
  EXPECT_EQ(hash64("foobar"), 0x85944171f73967e8ull);
}

TEST(Random, WordsMatchBlock) {
  const RandomKey key{11, hash64("weight"), 5};
  for (std::uint64_t element = 0; element < 64; ++element)
    EXPECT_EQ(random_word(key, element), random_block(key, element / 4)[element % 4]);
}

TEST(Random, EveryPartOfTheKeyMatters) {
  const RandomKey base{1, 2, 3};
  std::set<std::uint32_t> words;
  for (const RandomKey& key : {base, RandomKey{2, 2, 3}, RandomKey{1, 3, 3}, RandomKey{1, 2, 4}, RandomKey{2, 1, 3},
                               RandomKey{1, 2, 3 + (1ull << 32)}})
    words.insert(random_word(key, 0));
  words.insert(random_word(base, 1));
  words.insert(random_word(base, 1ull << 34));
  EXPECT_EQ(words.size(), 8u);
}

TEST(Random, UniformIsInRangeWithTheRightMoments) {
  EXPECT_EQ(to_uniform(0), 0.0f);
  EXPECT_EQ(to_uniform(~0u), 1.0f - 0x1p-24f);
  double sum = 0, squares = 0;
  constexpr int kCount = 100000;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double u = to_uniform(random_word(RandomKey{1, 1, 1}, i));
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / kCount, 0.5, 5 * 0.2887 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 5 * 0.298 / std::sqrt(kCount));
}

TEST(Random, NormalHasTheRightMomentsAndTails) {
  constexpr int kCount = 200000;
  double moments[5] = {};
  int beyond_two = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double x = random_normal(RandomKey{3, hash64("embed"), 0}, i);
    double power = 1;
    for (double& moment : moments) moment += power / kCount, power *= x;
    beyond_two += std::abs(x) > 2;
  }
  const double root = std::sqrt(kCount);
  EXPECT_NEAR(moments[1], 0, 5 / root);
  EXPECT_NEAR(moments[2], 1, 5 * std::sqrt(2.0) / root);
  EXPECT_NEAR(moments[3], 0, 5 * std::sqrt(15.0) / root);
  EXPECT_NEAR(moments[4], 3, 5 * std::sqrt(96.0) / root);
  EXPECT_NEAR(beyond_two / double{kCount}, 0.0455003, 5 * 0.2084 / root);
}

// Both of a Box-Muller pair come from the same two words and yet must not be correlated.
TEST(Random, NormalNeighboursAreUncorrelated) {
  constexpr int kCount = 100000;
  for (const std::uint64_t lag : {1, 2, 3, 4}) {
    double sum = 0;
    for (std::uint64_t i = 0; i < kCount; ++i)
      sum += random_normal(RandomKey{5, 6, 7}, i * 4) * random_normal(RandomKey{5, 6, 7}, i * 4 + lag);
    EXPECT_NEAR(sum / kCount, 0, 5 / std::sqrt(kCount)) << lag;
  }
}

TEST(Random, FillEqualsElementsWhereverItStarts) {
  const RandomKey key{9, hash64("lm_head.weight"), 0};
  for (const std::uint64_t first : {0ull, 1ull, 2ull, 3ull, 4ull, 1000003ull}) {
    for (const std::size_t count : {0u, 1u, 2u, 3u, 4u, 5u, 17u}) {
      std::vector<float> values(count);
      fill_random_normal(key, first, values);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], random_normal(key, first + i)) << first << "+" << i;
    }
  }
}

TEST(Random, BelowCoversItsRangeEvenly) {
  constexpr std::uint64_t kBound = 7;
  int counts[kBound] = {};
  constexpr int kDraws = 70000;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const std::uint64_t value = random_below(RandomKey{1, 2, 3}, i, kBound);
    ASSERT_LT(value, kBound);
    ++counts[value];
  }
  for (const int count : counts) EXPECT_NEAR(count, 10000, 5 * std::sqrt(10000.0 * 6 / 7));
  EXPECT_EQ(random_below(RandomKey{1, 2, 3}, 0, 1), 0u);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_LT(random_below(RandomKey{1, 2, 3}, i, 1ull << 63), 1ull << 63);
}

}  // namespace
}  // namespace quench
