#include "core/number/e8m0.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/number/float4.h"
#include "core/number/float6.h"
#include "core/number/float8.h"
#include "core/number/random.h"
#include "tests/core/number/special_floats.h"

namespace quench {
namespace {

using testing::kInf;
using testing::kNan;

TEST(E8m0, EveryByteDecodesToItsPowerOfTwo) {
  for (int byte = 0; byte < 255; ++byte) {
    EXPECT_EQ(decode_e8m0(static_cast<std::uint8_t>(byte)), std::ldexp(1.0f, byte - 127)) << byte;
    EXPECT_EQ(e8m0_reciprocal(static_cast<std::uint8_t>(byte)), std::ldexp(1.0f, 127 - byte)) << byte;
  }
  EXPECT_TRUE(std::isnan(decode_e8m0(255)));
  EXPECT_TRUE(std::isnan(e8m0_reciprocal(255)));
}

TEST(E8m0, EncodingRoundsUp) {
  for (int byte = 0; byte < 255; ++byte) {
    const float power = std::ldexp(1.0f, byte - 127);
    EXPECT_EQ(encode_e8m0_up(power), byte);
    EXPECT_EQ(encode_e8m0_up(std::nextafterf(power, kInf)), byte + 1);
    EXPECT_EQ(encode_e8m0_up(std::nextafterf(power, 0.0f)), byte);
  }
  EXPECT_EQ(encode_e8m0_up(0.0f), 0);
  EXPECT_EQ(encode_e8m0_up(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(encode_e8m0_up(std::numeric_limits<float>::max()), 255);
  EXPECT_EQ(encode_e8m0_up(kInf), 255);
  EXPECT_EQ(encode_e8m0_up(kNan), 255);
}

struct ScaleCase {
  float amax;
  int e4m3[4], e5m2[4], e2m1[4];  // floor, rceil, ceil, even
};

TEST(MxScale, WorkedExamples) {
  const ScaleCase cases[] = {
      {0.0f, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}},
      {0.01f, {112, 112, 113, 112}, {105, 105, 106, 105}, {118, 118, 119, 118}},
      {0.5f, {118, 118, 118, 118}, {111, 111, 111, 111}, {124, 124, 124, 124}},
      {1.0f, {119, 119, 119, 119}, {112, 112, 112, 112}, {125, 125, 125, 125}},
      {1.0078125f, {119, 119, 120, 119}, {112, 112, 113, 112}, {125, 125, 126, 125}},
      {1.5f, {119, 119, 120, 119}, {112, 112, 113, 112}, {125, 125, 126, 125}},
      {1.75f, {119, 119, 120, 119}, {112, 112, 113, 112}, {125, 126, 126, 126}},
      {1.9375f, {119, 120, 120, 120}, {112, 113, 113, 113}, {125, 126, 126, 126}},
      {3.0f, {120, 120, 121, 120}, {113, 113, 114, 113}, {126, 126, 127, 126}},
      {6.0f, {121, 121, 122, 121}, {114, 114, 115, 114}, {127, 127, 128, 127}},
      {7.0f, {121, 121, 122, 121}, {114, 114, 115, 114}, {127, 128, 128, 128}},
      {8.0f, {122, 122, 122, 122}, {115, 115, 115, 115}, {128, 128, 128, 128}},
      {256.0f, {127, 127, 127, 127}, {120, 120, 120, 120}, {133, 133, 133, 133}},
      {447.0f, {127, 127, 128, 127}, {120, 120, 121, 120}, {133, 134, 134, 133}},
      {448.0f, {127, 127, 128, 127}, {120, 120, 121, 120}, {133, 134, 134, 134}},
      {449.0f, {127, 128, 128, 127}, {120, 121, 121, 120}, {133, 134, 134, 134}},
      {480.0f, {127, 128, 128, 127}, {120, 121, 121, 121}, {133, 134, 134, 134}},
      {496.0f, {127, 128, 128, 128}, {120, 121, 121, 121}, {133, 134, 134, 134}},
      {512.0f, {128, 128, 128, 128}, {121, 121, 121, 121}, {134, 134, 134, 134}},
      {3.38953139e38f, {246, 247, 247, 255}, {239, 240, 240, 255}, {252, 253, 253, 255}},
      {kInf, {255, 255, 255, 255}, {255, 255, 255, 255}, {255, 255, 255, 255}},
      {kNan, {255, 255, 255, 255}, {255, 255, 255, 255}, {255, 255, 255, 255}},
  };
  for (const ScaleCase& c : cases) {
    for (int mode = 0; mode < kMxScaleModeCount; ++mode) {
      EXPECT_EQ(mx_scale<E4m3>(c.amax, static_cast<MxScaleMode>(mode)), c.e4m3[mode]) << c.amax << " mode " << mode;
      EXPECT_EQ(mx_scale<E5m2>(c.amax, static_cast<MxScaleMode>(mode)), c.e5m2[mode]) << c.amax << " mode " << mode;
      EXPECT_EQ(mx_scale<E2m1>(c.amax, static_cast<MxScaleMode>(mode)), c.e2m1[mode]) << c.amax << " mode " << mode;
    }
  }
}

template <class Element>
class MxScaleOf : public ::testing::Test {};
using Elements = ::testing::Types<E4m3, E5m2, E2m3, E3m2, E2m1>;
TYPED_TEST_SUITE(MxScaleOf, Elements, );

// The definition of each mode in f64 at amax values around every power of two and every multiple of max by one.
TYPED_TEST(MxScaleOf, FollowsItsDefinitionAtEveryBinade) {
  using Element = TypeParam;
  const auto check = [](float amax) {
    if (!(amax > 0) || !std::isfinite(amax)) return;
    const auto clamp = [](int unbiased) { return unbiased < -127 ? 0 : unbiased + 127; };
    const int exponent = std::ilogb(amax);  // subnormals' too, all of which clamp
    EXPECT_EQ(mx_scale<Element>(amax, MxScaleMode::floor), clamp(exponent - Element::kMaxExponent)) << amax;
    const bool power = std::ldexp(1.0f, exponent) == amax;
    EXPECT_EQ(mx_scale<Element>(amax, MxScaleMode::ceil), clamp(exponent - Element::kMaxExponent + !power)) << amax;
    if (amax < 0x1p-100f) return;
    const int rceil = mx_scale<Element>(amax, MxScaleMode::rceil);
    EXPECT_GE(std::ldexp(static_cast<double>(Element::kMax), rceil - 127), amax);
    EXPECT_LT(std::ldexp(static_cast<double>(Element::kMax), rceil - 128), amax);
    // Rounded to 1 + kMantissaBits significant bits, ties up: only the exponent matters.
    const double step = std::ldexp(1.0, exponent - Element::kMantissaBits);
    const double rounded = std::floor(amax / step + 0.5) * step;
    const int even = rounded >= 0x1p128 ? 255 : std::ilogb(rounded) - Element::kMaxExponent + 127;
    EXPECT_EQ(mx_scale<Element>(amax, MxScaleMode::even), even) << amax;
  };
  for (int exponent = -149; exponent <= 127; ++exponent) {
    for (const double significand :
         {1.0, static_cast<double>(Element::kMax) / (1 << Element::kMaxExponent), 1.9375, 1.96875, 1.75}) {
      const auto amax = static_cast<float>(std::ldexp(significand, exponent));
      check(amax);
      check(std::nextafterf(amax, kInf));
      check(std::nextafterf(amax, 0.0f));
    }
  }
  for (std::uint64_t i = 0; i < 20000; ++i)
    check(std::bit_cast<float>(random_word(RandomKey{7, 8, 9}, i) & kF32MagnitudeMask));
}

TYPED_TEST(MxScaleOf, SubnormalAmaxHasTheLeastScale) {
  for (const float amax : {std::numeric_limits<float>::denorm_min(), 0x1p-127f, std::nextafterf(0x1p-126f, 0.0f)})
    for (int mode = 0; mode < kMxScaleModeCount; ++mode)
      EXPECT_EQ(mx_scale<TypeParam>(amax, static_cast<MxScaleMode>(mode)), 0) << amax << " mode " << mode;
}

// f32-subnormal quotients round up past 2^-127, which is byte 0.
TEST(MxScale, RceilOfSubnormalQuotient) {
  const float at = 0x1p-127f * 6.0f;
  EXPECT_EQ(mx_scale<E2m1>(at, MxScaleMode::rceil), 0);
  EXPECT_EQ(mx_scale<E2m1>(at * 1.001f, MxScaleMode::rceil), 1);
}

}  // namespace
}  // namespace quench
