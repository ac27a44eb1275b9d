#include "core/number/nvfp4.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/core/number/special_floats.h"

namespace quench {
namespace {

using testing::kInf;
using testing::kNan;

TEST(Nvfp4, TwoLevelWorkedExample) {
  const float global = nvfp4_global_scale(4.0f);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(global), 0x3AC30C31u);
  const Nvfp4BlockScale scale = nvfp4_block_scale(0.75f, global);
  EXPECT_EQ(scale.code, 0x6A);
  EXPECT_EQ(scale.multiplier, 8.39999962f);
  const int expected[] = {0xFF, 0xEE, 0xCD, 0x9B, 0x31, 0x54, 0x66, 0x77};
  for (int i = 0; i < 8; ++i) {
    const auto x = [&](int j) { return static_cast<float>(0.1 * (j - 7.5)); };
    EXPECT_EQ(pack_nibbles(E2m1::encode(x(2 * i) * scale.multiplier), E2m1::encode(x(2 * i + 1) * scale.multiplier)),
              expected[i]);
  }
}

// One rounding fewer, or in another order, gives the neighbouring code.
TEST(Nvfp4, OrderOfOperationsDecidesTies) {
  const float global = nvfp4_global_scale(9.1875f);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(global), 0x3B600000u);
  const Nvfp4BlockScale two = nvfp4_block_scale(4.59375f, global);
  EXPECT_EQ(two.code, 0x76);
  EXPECT_EQ(E2m1::encode(1.9140625f * two.multiplier), 5);
  const Nvfp4BlockScale one = nvfp4_block_scale(0.17578125f);
  EXPECT_EQ(one.code, 0x0F);
  EXPECT_EQ(E2m1::encode(0.03662109375f * one.multiplier), 3);
}

TEST(Nvfp4, BlockScaleStaysWithinNormalE4m3) {
  EXPECT_EQ(nvfp4_block_scale(0.0f).code, 0x08);
  EXPECT_EQ(nvfp4_block_scale(0.0f).multiplier, 64.0f);
  EXPECT_EQ(nvfp4_block_scale(1e-30f, 1.0f).code, 0x08);
  EXPECT_EQ(nvfp4_block_scale(6.0f * 448.0f).code, 0x7E);
  EXPECT_EQ(nvfp4_block_scale(1e30f).code, 0x7E);
  EXPECT_EQ(nvfp4_block_scale(kInf).code, 0x7E);
}

TEST(Nvfp4, NanAmaxPoisonsTheBlock) {
  EXPECT_EQ(nvfp4_block_scale(kNan).code & 0x7F, 0x7F);
  EXPECT_TRUE(std::isnan(nvfp4_block_scale(kNan).multiplier));
  EXPECT_EQ(nvfp4_block_scale(kNan, 1.0f).code & 0x7F, 0x7F);
  EXPECT_EQ(nvfp4_block_scale(1.0f, nvfp4_global_scale(kNan)).code & 0x7F, 0x7F);
}

TEST(Nvfp4, ZeroTensorHasAScaleOfOneAndFiniteMultipliers) {
  EXPECT_EQ(nvfp4_global_scale(0.0f), 1.0f);
  EXPECT_EQ(nvfp4_global_scale(std::numeric_limits<float>::denorm_min()), 1.0f);
  const float least = nvfp4_global_scale(0x1p-121f * 2688.0f);
  EXPECT_EQ(least, 0x1p-121f);
  EXPECT_TRUE(std::isfinite(nvfp4_block_scale(0.0f, least).multiplier));
}

}  // namespace
}  // namespace quench
