// The 8-, 6- and 4-bit element formats against an independent model: every code, every decision point.

#include <gtest/gtest.h>

#include "core/number/float4.h"
#include "core/number/float6.h"
#include "core/number/float8.h"
#include "core/number/random.h"
#include "tests/core/number/minifloat_reference.h"
#include "tests/core/number/special_floats.h"

namespace quench {
namespace {

using testing::MinifloatReference;

template <class Element>
MinifloatReference reference();
template <>
MinifloatReference reference<E4m3>() {
  return {4, 3, 0x7F};
}
template <>
MinifloatReference reference<E5m2>() {
  return {5, 2, 0x7C};
}
template <>
MinifloatReference reference<E2m3>() {
  return {2, 3, 0x20};
}
template <>
MinifloatReference reference<E3m2>() {
  return {3, 2, 0x20};
}
template <>
MinifloatReference reference<E2m1>() {
  return {2, 1, 0x8};
}

template <class Element>
class Minifloats : public ::testing::Test {
 protected:
  const MinifloatReference reference_ = reference<Element>();
  static constexpr std::uint32_t kSign = 1u << (Element::kBits - 1);

  std::uint32_t saturated(float x) const {
    const std::uint32_t code = reference_.nearest(std::abs(static_cast<double>(x)));
    return std::min(code, reference_.finite_codes() - 1) | (std::signbit(x) ? kSign : 0);
  }
};
using Elements = ::testing::Types<E4m3, E5m2, E2m3, E3m2, E2m1>;
TYPED_TEST_SUITE(Minifloats, Elements, );

TYPED_TEST(Minifloats, ConstantsMatchTheGrid) {
  const std::uint32_t last = this->reference_.finite_codes() - 1;
  EXPECT_EQ(static_cast<double>(TypeParam::kMax), this->reference_.value(last));
  EXPECT_EQ(TypeParam::kMaxExponent, std::ilogb(TypeParam::kMax));
}

TYPED_TEST(Minifloats, EveryFiniteCodeDecodesToItsValueAndEncodesBack) {
  for (std::uint32_t code = 0; code < this->reference_.finite_codes(); ++code) {
    for (const std::uint32_t sign : {0u, this->kSign}) {
      const float value = TypeParam::decode(static_cast<std::uint8_t>(code | sign));
      ASSERT_EQ(static_cast<double>(std::abs(value)), this->reference_.value(code)) << code;
      ASSERT_EQ(std::signbit(value), sign != 0) << code;
      ASSERT_EQ(TypeParam::encode(value), code | sign);
    }
  }
}

TYPED_TEST(Minifloats, RoundsToNearestEvenAndSaturatesAtEveryDecisionPoint) {
  for (const float x : this->reference_.decision_points()) ASSERT_EQ(TypeParam::encode(x), this->saturated(x)) << x;
}

TYPED_TEST(Minifloats, RoundsEveryBf16Value) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto x = std::bit_cast<float>(bits << 16);
    if (std::isnan(x)) continue;
    ASSERT_EQ(TypeParam::encode(x), this->saturated(x)) << x;
  }
}

TYPED_TEST(Minifloats, RoundsRandomMantissasOfEveryBinade) {
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const std::uint32_t word = random_word(RandomKey{4, 5, 6}, i);
    const auto x = std::bit_cast<float>((word & 0x807FFFFFu) | (100u + word % 60u) << 23);
    ASSERT_EQ(TypeParam::encode(x), this->saturated(x)) << x;
  }
}

TYPED_TEST(Minifloats, NanOfAnyPayloadHasOneCodeAndKeepsItsSign) {
  for (const std::uint32_t word : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu}) {
    EXPECT_EQ(TypeParam::encode(std::bit_cast<float>(word)), TypeParam::kNanCode);
    EXPECT_EQ(TypeParam::encode(std::bit_cast<float>(word | 0x80000000u)), TypeParam::kNanCode | this->kSign);
  }
}

TEST(Float8, SpecialCodesDecodeAsTheFormatSays) {
  EXPECT_TRUE(std::isnan(E4m3::decode(0x7F)));
  EXPECT_TRUE(std::isnan(E4m3::decode(0xFF)));
  EXPECT_EQ(E5m2::decode(0x7C), std::numeric_limits<float>::infinity());
  EXPECT_EQ(E5m2::decode(0xFC), -std::numeric_limits<float>::infinity());
  for (const int code : {0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF})
    EXPECT_TRUE(std::isnan(E5m2::decode(static_cast<std::uint8_t>(code)))) << code;
}

template <class Element>
void check_without_saturation() {
  const MinifloatReference grid = reference<Element>();
  for (const float x : grid.decision_points()) {
    const std::uint32_t sign = std::signbit(x) ? 0x80 : 0;
    ASSERT_EQ(Element::encode_ieee(x), grid.nearest(std::abs(static_cast<double>(x))) | sign) << x;
  }
  EXPECT_EQ(Element::encode_ieee(-std::numeric_limits<float>::quiet_NaN()), 0xFF);
}

TEST(Float8, WithoutSaturationOverflowBecomesNanOrInfinity) {
  check_without_saturation<E4m3>();
  check_without_saturation<E5m2>();
  EXPECT_EQ(E4m3::encode_ieee(464.0f), 0x7E);  // the tie goes to the even code
  EXPECT_EQ(E4m3::encode_ieee(464.0001f), 0x7F);
  EXPECT_EQ(E5m2::encode_ieee(61440.0f), 0x7C);
  EXPECT_EQ(E5m2::encode_ieee(61439.996f), 0x7B);
}

TEST(Float8, ScaleOfAnAmax) {
  const auto bits = [](float amax, float max, bool power_of_two = false) {
    return std::bit_cast<std::uint32_t>(float8_scale(amax, max, power_of_two));
  };
  EXPECT_EQ(bits(0.0f, E4m3::kMax), 0x57CBBA10u);
  EXPECT_EQ(bits(1e-12f, E4m3::kMax), 0x57CBBA10u);
  EXPECT_EQ(bits(1e-30f, E4m3::kMax), 0x57CBBA10u);
  EXPECT_EQ(float8_scale(0.0f, E5m2::kMax, false), 5.73439982e16f);
  EXPECT_EQ(bits(0.01f, E4m3::kMax), 0x472F0000u);
  EXPECT_EQ(bits(3.0f, E4m3::kMax), 0x43155555u);
  EXPECT_EQ(bits(1000.0f, E4m3::kMax), 0x3EE56042u);
  EXPECT_EQ(float8_scale(3.0f, E5m2::kMax, false), 19114.666f);
  EXPECT_EQ(float8_scale(448.0f, E5m2::kMax, false), 128.0f);
}

TEST(Float8, PowerOfTwoScaleRoundsDown) {
  EXPECT_EQ(float8_scale(0.0f, E4m3::kMax, true), 2.81474977e14f);
  EXPECT_EQ(float8_scale(0.01f, E4m3::kMax, true), 32768.0f);
  EXPECT_EQ(float8_scale(3.0f, E4m3::kMax, true), 128.0f);
  EXPECT_EQ(float8_scale(448.0f, E4m3::kMax, true), 1.0f);
  EXPECT_EQ(float8_scale(1000.0f, E4m3::kMax, true), 0.25f);
  // Just below a power of two the mantissa is cleared, where a logarithm in f32 would round up to 8.
  float amax = 56.0f;
  while (448.0f / amax >= 8.0f) amax = std::nextafterf(amax, 100.0f);
  EXPECT_EQ(448.0f / amax, std::nextafterf(8.0f, 0.0f));
  EXPECT_EQ(float8_scale(amax, E4m3::kMax, true), 4.0f);
}

TEST(Float8, ScaleOfNonFiniteAmax) {
  using testing::kInf;
  for (const bool power_of_two : {false, true}) {
    EXPECT_TRUE(std::isnan(float8_scale(std::numeric_limits<float>::quiet_NaN(), E4m3::kMax, power_of_two)));
    EXPECT_EQ(float8_scale(kInf, E4m3::kMax, power_of_two), 0.0f);
  }
}

TEST(Float8, ScaledCastMatchesWorkedExample) {
  const float x[] = {3.0f, -1.7f, 0.123f, 0.0009f};
  const int plain[] = {0x7E, 0xF8, 0x59, 0x21}, power_of_two[] = {0x7C, 0xF6, 0x58, 0x1F};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(E4m3::encode(x[i] * float8_scale(3.0f, E4m3::kMax, false)), plain[i]);
    EXPECT_EQ(E4m3::encode(x[i] * float8_scale(3.0f, E4m3::kMax, true)), power_of_two[i]);
  }
}

TEST(Float4, WorkedExamples) {
  const std::pair<float, int> cases[] = {{0.25f, 0},   {0.2500001f, 1}, {0.75f, 2}, {1.25f, 2},
                                         {1.75f, 4},   {2.5f, 4},       {3.5f, 6},  {5.0f, 6},
                                         {5.0001f, 7}, {7.0f, 7},       {-0.0f, 8}, {-0.75f, 10}};
  for (const auto& [x, code] : cases) EXPECT_EQ(E2m1::encode(x), code) << x;
  EXPECT_EQ(E2m1::encode(std::numeric_limits<float>::infinity()), 7);
  EXPECT_EQ(E2m1::encode(-std::numeric_limits<float>::infinity()), 15);
}

TEST(Float4, PacksTheEvenElementLow) {
  EXPECT_EQ(pack_nibbles(0x3, 0xA), 0xA3);
}

}  // namespace
}  // namespace quench
