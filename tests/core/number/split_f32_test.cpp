#include "core/number/split_f32.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace quench {
namespace {

float joined(float x) {
  const bfloat16 upper(x);
  return join_f32(upper, split_low(x, upper));
}

std::uint32_t bits_of(float x) {
  return bit_cast<std::uint32_t>(x);
}

// Every low half under upper halves of all kinds: the value itself, but the next lower one for ties above an even bf16.
TEST(SplitF32, GivesTheValueBack) {
  for (const std::uint32_t upper : {0x0000u, 0x0001u, 0x0080u, 0x3F80u, 0x3F81u, 0x7F7Eu, 0x7F7Fu, 0x8000u, 0x8001u,
                                    0xBF80u, 0xBFFFu, 0xC2ABu, 0xFF7Fu})
    for (std::uint32_t low = 0; low < 0x10000u; ++low) {
      const std::uint32_t bits = upper << 16 | low;
      const bool tie_above_even = low == 0x8000u && upper % 2 == 0;
      ASSERT_EQ(bits_of(joined(bit_cast<float>(bits))), tie_above_even ? bits - 1 : bits) << std::hex << bits;
    }
}

TEST(SplitF32, UpperHalfIsTheNearestBf16OfTheJoinedValue) {
  for (std::uint32_t word = 1; word < 0x7F800000u; word += 9973) {
    const float x = bit_cast<float>(word);
    EXPECT_EQ(bfloat16(joined(x)).bits, bfloat16(x).bits) << std::hex << word;
  }
}

TEST(SplitF32, KeepsInfinityAndNan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(joined(kInfinity), kInfinity);
  EXPECT_EQ(joined(-kInfinity), -kInfinity);
  for (const std::uint32_t nan : {0x7FC00000u, 0x7F800001u, 0x7FFFFFFFu, 0xFFFFFFFFu, 0xFF80FFFFu}) {
    EXPECT_TRUE(std::isnan(joined(bit_cast<float>(nan)))) << std::hex << nan;
    EXPECT_EQ(split_low(bit_cast<float>(nan), bfloat16(bit_cast<float>(nan))), 0);
  }
}

}  // namespace
}  // namespace quench
