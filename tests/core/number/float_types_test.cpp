#include "core/number/float_types.h"

#include <gtest/gtest.h>

#include "core/number/random.h"
#include "tests/core/number/minifloat_reference.h"

namespace quench {
namespace {

using testing::MinifloatReference;

template <class Half>
class HalfFloat : public ::testing::Test {};

struct Bf16 {
  using Type = bfloat16;
  static constexpr int kExponentBits = 8, kMantissaBits = 7;
  static constexpr std::uint32_t kInfinity = 0x7F80;
};
struct F16 {
  using Type = float16;
  static constexpr int kExponentBits = 5, kMantissaBits = 10;
  static constexpr std::uint32_t kInfinity = 0x7C00;
};
using HalfFloats = ::testing::Types<Bf16, F16>;
TYPED_TEST_SUITE(HalfFloat, HalfFloats, );

TYPED_TEST(HalfFloat, EveryCodeWidensToItsValueAndRoundsBack) {
  using T = typename TypeParam::Type;
  const MinifloatReference reference(TypeParam::kExponentBits, TypeParam::kMantissaBits, TypeParam::kInfinity);
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const T value = T::from_bits(static_cast<std::uint16_t>(code));
    const auto widened = static_cast<float>(value);
    const std::uint32_t magnitude = code & 0x7FFF;
    if (magnitude > TypeParam::kInfinity) {
      ASSERT_TRUE(std::isnan(widened)) << code;
      ASSERT_TRUE(std::isnan(static_cast<float>(T(widened)))) << code;
      ASSERT_EQ(T(widened).bits >> 15, code >> 15) << code;
      continue;
    }
    const double expected =
        magnitude == TypeParam::kInfinity ? std::numeric_limits<double>::infinity() : reference.value(magnitude);
    ASSERT_EQ(static_cast<double>(std::abs(widened)), expected) << code;
    ASSERT_EQ(std::signbit(widened), code >= 0x8000) << code;
    ASSERT_EQ(T(widened).bits, code);
  }
}

TYPED_TEST(HalfFloat, RoundsToNearestEvenAtEveryDecisionPoint) {
  using T = typename TypeParam::Type;
  const MinifloatReference reference(TypeParam::kExponentBits, TypeParam::kMantissaBits, TypeParam::kInfinity);
  for (const float x : reference.decision_points()) {
    const std::uint32_t expected = reference.nearest(std::abs(static_cast<double>(x))) | (std::signbit(x) ? 0x8000 : 0);
    ASSERT_EQ(T(x).bits, expected) << x;
  }
}

TYPED_TEST(HalfFloat, RoundsRandomWordsToNearestEven) {
  using T = typename TypeParam::Type;
  const MinifloatReference reference(TypeParam::kExponentBits, TypeParam::kMantissaBits, TypeParam::kInfinity);
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const auto x = std::bit_cast<float>(random_word(RandomKey{1, 2, 3}, i));
    if (std::isnan(x)) continue;
    const std::uint32_t expected = reference.nearest(std::abs(static_cast<double>(x))) | (std::signbit(x) ? 0x8000 : 0);
    ASSERT_EQ(T(x).bits, expected) << x;
  }
}

TYPED_TEST(HalfFloat, NanWithAnyPayloadStaysNan) {
  using T = typename TypeParam::Type;
  for (const std::uint32_t word : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu}) {
    const T value(std::bit_cast<float>(word));
    EXPECT_GT(value.bits & 0x7FFFu, TypeParam::kInfinity) << word;
    EXPECT_EQ(value.bits >> 15, word >> 31) << word;
  }
}

}  // namespace
}  // namespace quench
