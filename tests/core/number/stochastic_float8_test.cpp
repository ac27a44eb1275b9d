#include "core/number/stochastic_float8.h"

#include <bit>
#include <cmath>

#include "tests/core/ops/quantize/quantize_inputs.h"

namespace quench {
namespace {

using namespace quench::testing;

template <class Element>
class StochasticFloat8 : public ::testing::Test {};
using Float8Elements = ::testing::Types<E4m3, E5m2>;
TYPED_TEST_SUITE(StochasticFloat8, Float8Elements);

// All 65536 draws: away from zero as often as the distance says, to half a draw, between subnormals too.
TYPED_TEST(StochasticFloat8, ProbabilityIsTheDistanceFromTheLowerNeighbour) {
  for (const int code : {0x00, 0x01, 0x03, 0x07, 0x08, 0x33, 0x40, 0x6F, 0x7A}) {
    const double low = TypeParam::decode(static_cast<std::uint8_t>(code)),
                 high = TypeParam::decode(static_cast<std::uint8_t>(code + 1));
    for (const double share : {0.0, 0x1p-20, 0x1p-16, 0.3, 0.5, 0.77, 0.9999}) {
      for (const double sign : {1.0, -1.0}) {
        const auto value = static_cast<float>(sign * (low + share * (high - low)));
        int away = 0;
        for (std::uint32_t random = 0; random < 65536; ++random) {
          const int got = stochastic_round_float8<TypeParam>(value, random);
          ASSERT_EQ(got & 0x80, sign < 0 ? 0x80 : 0);
          ASSERT_TRUE((got & 0x7F) == code || (got & 0x7F) == code + 1) << value << " " << random;
          away += (got & 0x7F) != code ? 1 : 0;
        }
        const double probability = (std::abs(static_cast<double>(value)) - low) / (high - low);
        EXPECT_NEAR(away, probability * 65536, 0.5) << value;
        if (share == 0) {
          EXPECT_EQ(away, 0);
        }
      }
    }
  }
}

TYPED_TEST(StochasticFloat8, CodesOfTheFormatNeverMove) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7F) > TypeParam::kMaxCode) continue;
    const float value = TypeParam::decode(static_cast<std::uint8_t>(code));
    for (const std::uint32_t random : {0u, 1u, 0x7FFFu, 0x8000u, 0xFFFFu})
      ASSERT_EQ(stochastic_round_float8<TypeParam>(value, random), code) << value;
  }
}

TYPED_TEST(StochasticFloat8, SaturationNanAndZeroAreThoseOfTheNearestCode) {
  for (const std::uint32_t random : {0u, 0x8000u, 0xFFFFu}) {
    for (const float beyond : {TypeParam::kMax, std::nextafter(TypeParam::kMax, kInf), 1.9f * TypeParam::kMax, 1e30f,
                               std::numeric_limits<float>::max(), kInf}) {
      ASSERT_EQ(stochastic_round_float8<TypeParam>(beyond, random), TypeParam::kMaxCode) << beyond;
      ASSERT_EQ(stochastic_round_float8<TypeParam>(-beyond, random), TypeParam::kMaxCode | 0x80) << beyond;
    }
    for (const std::uint32_t word : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu})
      ASSERT_EQ(stochastic_round_float8<TypeParam>(std::bit_cast<float>(word), random),
                TypeParam::encode(std::bit_cast<float>(word)));
    for (const float tiny : {0.0f, 1e-45f, 1e-39f, std::numeric_limits<float>::min(), 1e-20f}) {
      ASSERT_EQ(stochastic_round_float8<TypeParam>(tiny, random), 0x00) << tiny;
      ASSERT_EQ(stochastic_round_float8<TypeParam>(-tiny, random), 0x80) << tiny;
    }
  }
}

const RandomKey kKey{5, hash64("layer"), 7};

// One element at a time, where it stands.
template <class Element, class T>
int expected_code(const Tensor& x, std::int64_t row, std::int64_t column, float scale, const Float8Rounding& rounding) {
  const float value = static_cast<float>(x.data<T>()[row * x.size(-1) + column]) * scale;
  const auto r = rounding.first_row + static_cast<std::uint64_t>(row), c = static_cast<std::uint64_t>(column);
  return stochastic_round_float8<Element>(value, rounding_bits(random_block(*rounding.key, (r << 32) + c / 8), c));
}

template <class T>
void check_casts(const Shape& shape, Granularity granularity) {
  const Tensor x = random_tensor<T>(shape);
  const Float8Rounding rounding{kKey, 3};
  const QuantTensor q = quantize_float8(x, {ElementFormat::e5m2, granularity, false, rounding});
  const QuantTensor nearest = quantize_float8(x, {ElementFormat::e5m2, granularity, false});
  expect_equal(q.scales(), nearest.scales());
  const std::int64_t columns = shape[-1], rows = shape.numel() / columns, height = shape[-2];
  QuantTensor turned;
  if (granularity != Granularity::row)
    turned = cast_float8(x, q.scales(), ElementFormat::e5m2, granularity, Orientation::transposed, rounding);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) {
      const float scale = q.scales().data<float>()[granularity == Granularity::tensor ? 0
                                                   : granularity == Granularity::row  ? r
                                                                                      : r / height * columns + c];
      const int expected = expected_code<E5m2, T>(x, r, c, scale, rounding);
      ASSERT_EQ(bytes(q.payload())[r * columns + c], expected) << r << " " << c;
      if (turned.defined()) {
        ASSERT_EQ(bytes(turned.payload())[(r / height * columns + c) * height + r % height], expected) << r << " " << c;
      }
    }
}

TEST(StochasticFloat8Cast, EveryElementHasTheDrawOfItsPlace) {
  for (const Shape& shape : {Shape{1, 1}, Shape{5, 37}, Shape{2, 3, 65}, Shape{130, 256}})
    for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::column}) {
      SCOPED_TRACE(::testing::Message() << shape.to_string() << " by " << to_string(granularity));
      check_casts<float>(shape, granularity);
      check_casts<bfloat16>(shape, granularity);
    }
}

TEST(StochasticFloat8Cast, OneScaleGivesBothOrientationsTheSameCodes) {
  const Tensor x = random_tensor<bfloat16>({67, 90});
  const Tensor scale = float8_scale(amax(x, Granularity::tensor), ElementFormat::e5m2, false);
  const Float8Pair pair = cast_float8_pair(x, scale, ElementFormat::e5m2, {kKey});
  for (std::int64_t r = 0; r < 67; ++r)
    for (std::int64_t c = 0; c < 90; ++c)
      ASSERT_EQ(bytes(pair.natural.payload())[r * 90 + c], bytes(pair.transposed.payload())[c * 67 + r]);
  expect_equal(pair.natural.payload(),
               cast_float8(x, scale, ElementFormat::e5m2, Granularity::tensor, Orientation::natural, {kKey}).payload());
}

TEST(StochasticFloat8Cast, PiecesAndPaddingKeepEveryDraw) {
  const Tensor x = random_tensor<float>({24, 20}), padded = Tensor::zeros({32, 32}, DType::f32), scale = of({}, {0.7f});
  for (std::int64_t r = 0; r < 24; ++r) std::copy_n(x.data<float>() + r * 20, 20, padded.data<float>() + r * 32);
  const auto cast = [&](const Tensor& t, std::uint64_t first_row) {
    return cast_float8(t, scale, ElementFormat::e4m3, Granularity::tensor, Orientation::natural, {kKey, first_row})
        .payload();
  };
  const Tensor whole = cast(x, 0), wide = cast(padded, 0);
  for (std::int64_t r = 0; r < 24; ++r)
    for (std::int64_t c = 0; c < 20; ++c) ASSERT_EQ(bytes(whole)[r * 20 + c], bytes(wide)[r * 32 + c]);
  expect_equal(cast(x.narrow(0, 0, 9), 0), whole.narrow(0, 0, 9).clone());
  expect_equal(cast(x.narrow(0, 9, 15), 9), whole.narrow(0, 9, 15).clone());
}

TEST(StochasticFloat8Cast, AKeyIsARoundingAndAnotherKeyAnother) {
  const Tensor x = random_tensor<bfloat16>({64, 64});
  const auto codes = [&](const RandomKey& key) {
    return byte_values(quantize_float8(x, {.rounding = {key}}).payload());
  };
  const auto base = codes(kKey);
  EXPECT_EQ(codes(kKey), base);
  EXPECT_NE(codes({kKey.seed + 1, kKey.stream, kKey.step}), base);
  EXPECT_NE(codes({kKey.seed, kKey.stream + 1, kKey.step}), base);
  EXPECT_NE(codes({kKey.seed, kKey.stream, kKey.step + 1}), base);
  EXPECT_NE(byte_values(quantize_float8(x, {}).payload()), base);
}

TEST(StochasticFloat8Cast, TheMeanOverStepsIsTheValue) {
  // Values between 1/8 and 1, and at the edge of the subnormals; what rounding to nearest gets wrong is far outside of
  // the bound for many of them.
  const std::int64_t kRows = 8, kColumns = 32;
  const Tensor x = Tensor::empty({kRows, kColumns}, DType::f32), scale = of({}, {1.0f});
  for (std::int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = (i % 2 == 0 ? 1.0f : -0x1p-7f) * (0.125f + 0.875f * static_cast<float>(i) / 256.0f);
  constexpr int kSteps = 4000;
  std::vector<double> sums(static_cast<std::size_t>(x.numel()));
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    const QuantTensor q =
        cast_float8(x, scale, ElementFormat::e4m3, Granularity::tensor, Orientation::natural, {RandomKey{1, 2, step}});
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += E4m3::decode(bytes(q.payload())[i]);
  }
  int nearest_is_off = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const float value = x.data<float>()[i];
    const double step = std::ldexp(1.0, std::max(std::ilogb(value) - 3, -9));
    const double bound = 5 * step * 0.5 / std::sqrt(double{kSteps});  // the deviation of a mean is at most half a step
    EXPECT_NEAR(sums[i] / kSteps, value, bound) << i;
    nearest_is_off += std::abs(E4m3::decode(E4m3::encode(value)) - value) > bound ? 1 : 0;
  }
  EXPECT_GT(nearest_is_off, 100);
}

TEST(StochasticFloat8Cast, NanAndInfinityMatchNearestRounding) {
  const Tensor x = of({3, 4}, {1, kNan, 2, 3, kInf, 1, -2, 0, 4, -448, 7, -0.0f});
  for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::column}) {
    const Tensor scale = granularity == Granularity::tensor
                             ? of({}, {1.0f})
                             : float8_scale(amax(x, granularity), ElementFormat::e4m3, false);
    const Tensor nearest = cast_float8(x, scale, ElementFormat::e4m3, granularity).payload(),
                 random =
                     cast_float8(x, scale, ElementFormat::e4m3, granularity, Orientation::natural, {kKey}).payload();
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const bool special = (bytes(nearest)[i] & 0x7F) >= 0x7E || (bytes(nearest)[i] & 0x7F) == 0;
      if (special) {
        EXPECT_EQ(bytes(random)[i], bytes(nearest)[i]) << i;
      }
    }
    EXPECT_EQ(bytes(nearest)[1] & 0x7F, 0x7F);
  }
}

}  // namespace
}  // namespace quench
