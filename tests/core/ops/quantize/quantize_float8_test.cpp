#include "core/ops/quantize/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/core/ops/quantize/quantize_inputs.h"

namespace quench {
namespace {

using namespace quench::testing;

TEST(Amax, TakesTheLargestMagnitudeAlongTheAxis) {
  const Tensor x = of({2, 3}, {1, -5, 2, 0.5f, 4, -0.0f});
  EXPECT_EQ(amax(x, Granularity::tensor).shape(), Shape());
  EXPECT_EQ(*amax(x, Granularity::tensor).data<float>(), 5.0f);
  const Tensor rows = amax(x, Granularity::row), columns = amax(x, Granularity::column);
  EXPECT_EQ(rows.shape(), (Shape{2, 1}));
  EXPECT_EQ(columns.shape(), (Shape{1, 3}));
  EXPECT_EQ(std::vector<float>(rows.data<float>(), rows.data<float>() + 2), (std::vector<float>{5, 4}));
  EXPECT_EQ(std::vector<float>(columns.data<float>(), columns.data<float>() + 3), (std::vector<float>{1, 5, 2}));
}

TEST(Amax, NanWinsOverInfinityInItsOwnSlice) {
  const Tensor x = of({2, 3}, {1, -kNan, kInf, 2, 3, -kInf});
  EXPECT_TRUE(std::isnan(*amax(x, Granularity::tensor).data<float>()));
  const Tensor rows = amax(x, Granularity::row), columns = amax(x, Granularity::column);
  EXPECT_TRUE(std::isnan(rows.data<float>()[0]));
  EXPECT_EQ(rows.data<float>()[1], kInf);
  EXPECT_EQ(columns.data<float>()[0], 2.0f);
  EXPECT_TRUE(std::isnan(columns.data<float>()[1]));
}

TEST(Amax, OfEmptyAndOfSubnormals) {
  EXPECT_EQ(*amax(Tensor::empty({0, 4}, DType::f32), Granularity::tensor).data<float>(), 0.0f);
  EXPECT_EQ(amax(Tensor::empty({3, 0}, DType::f32), Granularity::row).data<float>()[2], 0.0f);
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(*amax(of({2}, {0.0f, -least}), Granularity::tensor).data<float>(), least);
}

// The encoders applied one element at a time are the reference for the vectorised loops.
template <class T>
void check_float8(const Shape& shape, ElementFormat element, Granularity granularity, bool power_of_two) {
  const Tensor x = random_tensor<T>(shape);
  const QuantTensor q = quantize_float8(x, {element, granularity, power_of_two});
  ASSERT_EQ(q.payload().shape(), shape);
  ASSERT_EQ(q.source_dtype(), dtype_of<T>);
  const std::int64_t rows = shape[-2], columns = shape[-1];
  const auto slot = [&](std::int64_t i) {
    if (granularity == Granularity::tensor) return std::int64_t{0};
    return granularity == Granularity::row ? i / columns : i / (rows * columns) * columns + i % columns;
  };
  std::vector<float> most(static_cast<std::size_t>(q.scales().numel()));
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    float& m = most[static_cast<std::size_t>(slot(i))];
    m = std::max(m, std::abs(static_cast<float>(x.data<T>()[i])));
  }
  const bool e4m3 = element == ElementFormat::e4m3;
  for (std::size_t i = 0; i < most.size(); ++i)
    ASSERT_EQ(q.scales().data<float>()[i], float8_scale(most[i], e4m3 ? E4m3::kMax : E5m2::kMax, power_of_two));
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const float scaled = static_cast<float>(x.data<T>()[i]) * q.scales().data<float>()[slot(i)];
    ASSERT_EQ(bytes(q.payload())[i], e4m3 ? E4m3::encode(scaled) : E5m2::encode(scaled)) << i;
  }
}

TEST(Float8Quantize, MatchesTheEncoderElementByElement) {
  for (const Shape& shape : {Shape{1, 1}, Shape{5, 37}, Shape{2, 3, 65}, Shape{130, 257}})
    for (const ElementFormat element : {ElementFormat::e4m3, ElementFormat::e5m2})
      for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::column})
        for (const bool power_of_two : {false, true}) {
          check_float8<float>(shape, element, granularity, power_of_two);
          check_float8<bfloat16>(shape, element, granularity, power_of_two);
        }
}

TEST(Float8Quantize, RowsByOnePassEqualRowsByThreeSteps) {
  const Tensor x = random_tensor<bfloat16>({33, 129});
  const QuantTensor fused = quantize_float8(x, {.granularity = Granularity::row});
  const Tensor scale = float8_scale(amax(x, Granularity::row), ElementFormat::e4m3, false);
  const QuantTensor stepwise = cast_float8(x, scale, ElementFormat::e4m3, Granularity::row);
  expect_equal(fused.scales(), stepwise.scales());
  expect_equal(fused.payload(), stepwise.payload());
}

TEST(Float8Quantize, CastWithAGivenScaleSaturates) {
  const Tensor x = of({1, 4}, {1.0f, -1000.0f, -0.0f, 0x1p-140f});
  const QuantTensor q = cast_float8(x, of({}, {2.0f}), ElementFormat::e4m3, Granularity::tensor);
  EXPECT_EQ(byte_values(q.payload()), (std::vector<int>{0x40, 0xFE, 0x80, 0x00}));
}

TEST(Float8Quantize, NanPoisonsItsRowOnly) {
  const QuantTensor q = quantize_float8(of({2, 2}, {1, kNan, 1, 2}), {.granularity = Granularity::row});
  EXPECT_TRUE(std::isnan(q.scales().data<float>()[0]));
  EXPECT_EQ(bytes(q.payload())[0] & 0x7F, 0x7F);
  EXPECT_EQ(bytes(q.payload())[1] & 0x7F, 0x7F);
  EXPECT_EQ(q.scales().data<float>()[1], 224.0f);
  EXPECT_EQ(bytes(q.payload())[3], 0x7E);
}

TEST(Float8Quantize, InfinityGivesScaleZeroAndNanWhereItStands) {
  const QuantTensor q = quantize_float8(of({1, 3}, {1, kInf, -2}), {});
  EXPECT_EQ(*q.scales().data<float>(), 0.0f);
  EXPECT_EQ(bytes(q.payload())[0], 0x00);
  EXPECT_EQ(bytes(q.payload())[1] & 0x7F, 0x7F);
  EXPECT_EQ(bytes(q.payload())[2], 0x80);
}

TEST(Float8Quantize, ZeroTensorHasAFiniteScaleAndComesBackAsZero) {
  const QuantTensor q = quantize_float8(Tensor::zeros({2, 8}, DType::bf16), {});
  EXPECT_EQ(std::bit_cast<std::uint32_t>(*q.scales().data<float>()), 0x57CBBA10u);
  for (const int byte : byte_values(dequantize(q, DType::f32))) EXPECT_EQ(byte, 0);
}

TEST(Float8Quantize, SubnormalInputIsNotFlushed) {
  // The scale of a row below 1e-12 is that of 1e-12, so 1e-38 (an f32 subnormal) vanishes in the cast, not before it.
  const QuantTensor q = quantize_float8(of({1, 2}, {0x1p-130f, -0x1p-130f}), {});
  EXPECT_EQ(byte_values(q.payload()), (std::vector<int>{0x00, 0x80}));
  const QuantTensor large =
      cast_float8(of({1, 1}, {0x1p-130f}), of({}, {0x1p127f}), ElementFormat::e4m3, Granularity::tensor);
  EXPECT_EQ(bytes(large.payload())[0], E4m3::encode(0x1p-3f));
}

TEST(Float8Quantize, DequantizeDividesByTheScaleThenRoundsOnce) {
  for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::column}) {
    const Tensor x = random_tensor({2, 5, 19});
    const QuantTensor q = quantize_float8(x, {ElementFormat::e5m2, granularity, false});
    const Tensor wide = dequantize(q, DType::f32), narrow = dequantize(q, DType::bf16);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const std::int64_t s = granularity == Granularity::tensor ? 0
                             : granularity == Granularity::row  ? i / 19
                                                                : i / 95 * 19 + i % 19;
      const float expected = E5m2::decode(bytes(q.payload())[i]) / q.scales().data<float>()[s];
      ASSERT_EQ(wide.data<float>()[i], expected);
      ASSERT_EQ(narrow.data<bfloat16>()[i].bits, bfloat16(expected).bits);
    }
  }
}

// Bytes of the last two axes exchanged.
std::vector<int> transposed_bytes(const Tensor& codes) {
  const std::int64_t rows = codes.size(-2), columns = codes.size(-1);
  std::vector<int> result(static_cast<std::size_t>(codes.numel()));
  for (std::int64_t i = 0; i < codes.numel(); ++i) {
    const std::int64_t b = i / (rows * columns), r = i / columns % rows, c = i % columns;
    result[static_cast<std::size_t>((b * columns + c) * rows + r)] = bytes(codes)[i];
  }
  return result;
}

QuantTensor poisoned(const Tensor& x, const Tensor& scale, const QuantFormat& format) {
  const Tensor payload = Tensor::empty(format.payload_shape(x.shape()), payload_dtype(format.element));
  std::memset(payload.raw_data(), 0xA5, payload.nbytes());
  return {format, x.shape(), x.dtype(), payload, scale};
}

template <class T>
void check_transposed(const Shape& shape, ElementFormat element, Granularity granularity) {
  const Tensor x = random_tensor<T>(shape, static_cast<std::uint64_t>(shape.numel()));
  const Tensor scale = float8_scale(amax(x, granularity), element, false);
  const QuantTensor natural = cast_float8(x, scale, element, granularity);
  const std::vector<int> expected = transposed_bytes(natural.payload());

  const QuantTensor alone = cast_float8(x, scale, element, granularity, Orientation::transposed);
  Shape turned = shape;
  std::swap(turned[-1], turned[-2]);
  ASSERT_EQ(alone.payload().shape(), turned);
  ASSERT_EQ(alone.shape(), shape);
  EXPECT_EQ(byte_values(alone.payload()), expected);

  QuantFormat format{.element = element, .granularity = granularity};
  const QuantTensor out = poisoned(x, scale, format);
  format.orientation = Orientation::transposed;
  const QuantTensor transposed = poisoned(x, scale, format);
  float8_cast_slot(DeviceType::cpu, {x, out, transposed});
  expect_equal(out.payload(), natural.payload());
  EXPECT_EQ(byte_values(transposed.payload()), expected);
}

TEST(Float8Quantize, TransposedCodesMatchUntransposedCast) {
  for (const Shape& shape : {Shape{1, 1}, Shape{5, 37}, Shape{64, 48}, Shape{65, 3}, Shape{2, 3, 66}, Shape{3, 2, 7, 9},
                             Shape{130, 257}, Shape{300, 512}})
    for (const ElementFormat element : {ElementFormat::e4m3, ElementFormat::e5m2})
      for (const Granularity granularity : {Granularity::tensor, Granularity::column}) {
        SCOPED_TRACE(shape.to_string());
        check_transposed<float>(shape, element, granularity);
        check_transposed<bfloat16>(shape, element, granularity);
      }
}

TEST(Float8Quantize, PairIsBothOrientationsUnderOneScale) {
  const Tensor x = random_tensor<bfloat16>({2, 33, 70});
  const Tensor scale = float8_scale(amax(x, Granularity::tensor), ElementFormat::e5m2, true);
  const Float8Pair pair = cast_float8_pair(x, scale, ElementFormat::e5m2);
  expect_equal(pair.natural.payload(), cast_float8(x, scale, ElementFormat::e5m2, Granularity::tensor).payload());
  EXPECT_EQ(pair.transposed.payload().shape(), (Shape{2, 70, 33}));
  EXPECT_EQ(byte_values(pair.transposed.payload()), transposed_bytes(pair.natural.payload()));
  EXPECT_EQ(pair.natural.scales().raw_data(), scale.raw_data());
  EXPECT_EQ(pair.transposed.scales().raw_data(), scale.raw_data());
}

// The view of a transposed payload means the transposed matrix: its rows have the scales that were the columns'.
TEST(Float8Quantize, TransposedPayloadByColumnIsTheTransposeByRow) {
  const Tensor x = random_tensor({37, 21});
  const QuantTensor by_row = quantize_float8(transposed_copy(x), {.granularity = Granularity::row});
  const Tensor scale = float8_scale(amax(x, Granularity::column), ElementFormat::e4m3, false);
  const QuantTensor view =
      cast_float8(x, scale, ElementFormat::e4m3, Granularity::column, Orientation::transposed).transposed_view();
  EXPECT_EQ(view.format(), by_row.format());
  EXPECT_EQ(view.shape(), by_row.shape());
  expect_equal(view.scales(), by_row.scales());
  expect_equal(view.payload(), by_row.payload());
  expect_equal(dequantize(view, DType::f32), dequantize(by_row, DType::f32));
}

TEST(Float8Quantize, RowsRaiseTheColumnsMaxima) {
  for (const Shape& shape : {Shape{5, 37}, Shape{2, 9, 24}}) {
    const Tensor x = random_tensor<bfloat16>(shape), later = random_tensor<bfloat16>(shape, 2);
    Shape per_column = shape;
    per_column[-2] = 1;
    const Tensor most = Tensor::zeros(per_column, DType::f32);
    const QuantTensor plain = quantize_float8(x, {.granularity = Granularity::row}),
                      got = quantize_float8_rows(x, ElementFormat::e4m3, false, most);
    expect_equal(got.scales(), plain.scales());
    expect_equal(got.payload(), plain.payload());
    const Tensor first = amax(x, Granularity::column), second = amax(later, Granularity::column);
    expect_equal(most, first);
    (void)quantize_float8_rows(later, ElementFormat::e4m3, false, most);
    for (std::int64_t i = 0; i < most.numel(); ++i)
      ASSERT_EQ(most.data<float>()[i], std::max(first.data<float>()[i], second.data<float>()[i]));
  }
}

TEST(Float8Quantize, ColumnMaximaKeepNan) {
  const Tensor most = of({1, 5}, {kNan, 1, kInf, 2, 0});
  (void)quantize_float8_rows(of({2, 5}, {kInf, -kNan, 1, -3, -0.0f, 0, kInf, kNan, 1, 0}), ElementFormat::e4m3, false,
                             most);
  EXPECT_TRUE(std::isnan(most.data<float>()[0]));
  EXPECT_TRUE(std::isnan(most.data<float>()[1]));
  EXPECT_TRUE(std::isnan(most.data<float>()[2]));
  EXPECT_EQ(most.data<float>()[3], 3.0f);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(most.data<float>()[4]), 0u);
}

TEST(Float8Quantize, EmptyTransposedAndEmptyColumns) {
  const Tensor one = of({}, {1});
  const Float8Pair pair = cast_float8_pair(Tensor::empty({0, 4}, DType::bf16), one, ElementFormat::e4m3);
  EXPECT_EQ(pair.transposed.payload().shape(), (Shape{4, 0}));
  const Tensor most = of({1, 3}, {1, 2, 3});
  (void)quantize_float8_rows(Tensor::empty({0, 3}, DType::f32), ElementFormat::e4m3, false, most);
  expect_equal(most, of({1, 3}, {1, 2, 3}));
  const QuantTensor narrow = quantize_float8_rows(Tensor::empty({2, 0}, DType::f32), ElementFormat::e4m3, false,
                                                  Tensor::empty({1, 0}, DType::f32));
  EXPECT_EQ(narrow.scales().shape(), (Shape{2, 1}));
}

TEST(Float8Quantize, RefusesWhatDoesNotFit) {
  const Tensor x = random_tensor({4, 6});
  const auto quantize = [](const Tensor& t, const Float8Options& options) {
    return message_of([&] { (void)quantize_float8(t, options); });
  };
  EXPECT_THAT(quantize(x.transpose(0, 1), {}), ::testing::HasSubstr("must be contiguous"));
  EXPECT_THAT(quantize(Tensor::empty({4}, DType::i32), {}), ::testing::HasSubstr("expected f32 or bf16"));
  EXPECT_THAT(quantize(Tensor(), {}), ::testing::HasSubstr("undefined tensor"));
  EXPECT_THAT(quantize(x, {.element = ElementFormat::e2m1}), ::testing::HasSubstr("expected e4m3, e5m2 or int8"));
  EXPECT_THAT(quantize(x, {.granularity = Granularity::block}), ::testing::HasSubstr("granularity block"));
  EXPECT_THAT(quantize(x.view({24}), {.granularity = Granularity::column}), ::testing::HasSubstr("needs rank 2"));
  EXPECT_THAT(message_of([&] {
                (void)cast_float8(x, of({6}, std::vector<float>(6, 1)), ElementFormat::e4m3, Granularity::row);
              }),
              ::testing::HasSubstr("scales is f32[6] on cpu, expected f32[4, 1]"));
  EXPECT_THAT(message_of([&] {
                (void)cast_float8(x, of({4, 1}, std::vector<float>(4, 1)), ElementFormat::e4m3, Granularity::row,
                                  Orientation::transposed);
              }),
              ::testing::HasSubstr("scales by row with a transposed payload"));
  EXPECT_THAT(message_of([&] {
                (void)cast_float8(x.view({24}), of({}, {1}), ElementFormat::e4m3, Granularity::tensor,
                                  Orientation::transposed);
              }),
              ::testing::HasSubstr("rank 2"));
  EXPECT_THAT(
      message_of([&] { (void)quantize_float8_rows(x, ElementFormat::e4m3, false, of({6}, std::vector<float>(6, 0))); }),
      ::testing::HasSubstr("column_amax"));
}

}  // namespace
}  // namespace quench
