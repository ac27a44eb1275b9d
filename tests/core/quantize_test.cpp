#include "core/ops/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "core/random.h"

namespace quench {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Normal values over a range of binades.
template <class T = float>
Tensor random_tensor(const Shape& shape, std::uint64_t seed = 1) {
  Tensor x = Tensor::empty(shape, dtype_of<T>);
  T* values = x.data<T>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const auto element = static_cast<std::uint64_t>(i);
    const int exponent = static_cast<int>(random_below(RandomKey{seed, 1, 0}, element, 24)) - 12;
    values[i] = T(std::ldexp(random_normal(RandomKey{seed, 0, 0}, element), exponent));
  }
  return x;
}

Tensor of(const Shape& shape, const std::vector<float>& values) {
  return Tensor::from_values<float>(shape, values);
}

const std::uint8_t* bytes(const Tensor& tensor) {
  return static_cast<const std::uint8_t*>(tensor.raw_data());
}

std::vector<int> byte_values(const Tensor& tensor) {
  return {bytes(tensor), bytes(tensor) + tensor.nbytes()};
}

Tensor transposed_copy(const Tensor& x) {
  const std::int64_t rows = x.size(-2), columns = x.size(-1), batch = x.numel() / (rows * columns);
  Shape shape = x.shape();
  std::swap(shape[-1], shape[-2]);
  Tensor result = Tensor::empty(shape, DType::f32);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        result.data<float>()[(b * columns + c) * rows + r] = x.data<float>()[(b * rows + r) * columns + c];
  return result;
}

void expect_equal(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  ASSERT_EQ(a.dtype(), b.dtype());
  EXPECT_EQ(byte_values(a), byte_values(b));
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

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

TEST(Float8Quantize, RefusesWhatDoesNotFit) {
  const Tensor x = random_tensor({4, 6});
  const auto quantize = [](const Tensor& t, const Float8Options& options) {
    return message_of([&] { (void)quantize_float8(t, options); });
  };
  EXPECT_THAT(quantize(x.transpose(0, 1), {}), ::testing::HasSubstr("must be contiguous"));
  EXPECT_THAT(quantize(Tensor::empty({4}, DType::i32), {}), ::testing::HasSubstr("expected f32 or bf16"));
  EXPECT_THAT(quantize(Tensor(), {}), ::testing::HasSubstr("undefined tensor"));
  EXPECT_THAT(quantize(x, {.element = ElementFormat::e2m1}), ::testing::HasSubstr("expected e4m3 or e5m2"));
  EXPECT_THAT(quantize(x, {.granularity = Granularity::block}), ::testing::HasSubstr("granularity block"));
  EXPECT_THAT(quantize(x.view({24}), {.granularity = Granularity::column}), ::testing::HasSubstr("needs rank 2"));
  EXPECT_THAT(message_of([&] {
                (void)cast_float8(x, of({6}, std::vector<float>(6, 1)), ElementFormat::e4m3, Granularity::row);
              }),
              ::testing::HasSubstr("scales is f32[6] on cpu, expected f32[4, 1]"));
}

const ElementFormat kElements[] = {ElementFormat::e4m3, ElementFormat::e5m2, ElementFormat::e2m3, ElementFormat::e3m2,
                                   ElementFormat::e2m1};
const MxScaleMode kModes[] = {MxScaleMode::floor, MxScaleMode::rceil, MxScaleMode::ceil, MxScaleMode::even};

TEST(MxQuantize, MatchesTheEncoderElementByElement) {
  const Tensor x = random_tensor<bfloat16>({3, 7, 96});
  for (const ElementFormat element : kElements) {
    for (const MxScaleMode mode : kModes) {
      const QuantTensor q = quantize_mx(x, {.element = element, .mode = mode});
      ASSERT_EQ(q.scales().shape(), (Shape{3, 7, 3}));
      dispatch_element<E4m3, E5m2, E2m3, E3m2, E2m1>(element, "test", [&]<class Element>() {
        for (std::int64_t b = 0; b < x.numel() / 32; ++b) {
          float most = 0;
          for (std::int64_t i = 0; i < 32; ++i) most = std::max(most, std::abs(float{x.data<bfloat16>()[b * 32 + i]}));
          const int scale = bytes(q.scales())[b];
          ASSERT_EQ(scale, mx_scale<Element>(most, mode));
          for (std::int64_t i = b * 32; i < b * 32 + 32; ++i) {
            const int code = Element::encode(std::ldexp(float{x.data<bfloat16>()[i]}, 127 - scale));
            const int stored =
                Element::kBits == 4 ? bytes(q.payload())[i / 2] >> (i % 2 * 4) & 0xF : bytes(q.payload())[i];
            ASSERT_EQ(stored, code) << i;
          }
        }
      });
    }
  }
}

TEST(MxQuantize, TransposedIsTheCastOfTheTransposedTensor) {
  for (const Shape& shape : {Shape{32, 1}, Shape{64, 63}, Shape{2, 96, 130}, Shape{160, 64}}) {
    const Tensor x = random_tensor(shape);
    for (const ElementFormat element : kElements) {
      const QuantTensor q = quantize_mx(x, {.element = element, .orientation = Orientation::transposed});
      const QuantTensor expected = quantize_mx(transposed_copy(x), {.element = element});
      EXPECT_EQ(q.shape(), shape);
      expect_equal(q.scales(), expected.scales());
      expect_equal(q.payload(), expected.payload());
      expect_equal(dequantize(q, DType::f32), transposed_copy(dequantize(expected, DType::f32)));
    }
  }
}

TEST(MxQuantize, DequantizeIsCodeTimesPowerOfTwo) {
  const Tensor x = random_tensor({4, 64});
  const QuantTensor q = quantize_mx(x, {.element = ElementFormat::e3m2});
  const Tensor wide = dequantize(q, DType::f32), narrow = dequantize(q, DType::bf16);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const float expected = std::ldexp(E3m2::decode(bytes(q.payload())[i]), bytes(q.scales())[i / 32] - 127);
    ASSERT_EQ(wide.data<float>()[i], expected);
    ASSERT_EQ(narrow.data<bfloat16>()[i].bits, bfloat16(expected).bits);
  }
}

TEST(MxQuantize, ZeroBlockHasTheLeastScale) {
  const QuantTensor q = quantize_mx(of({1, 32}, std::vector<float>(32, -0.0f)), {.element = ElementFormat::e2m1});
  EXPECT_EQ(byte_values(q.scales()), (std::vector<int>{0}));
  EXPECT_EQ(byte_values(q.payload()), std::vector<int>(16, 0x88));
}

TEST(MxQuantize, FloorClipsWhatRceilKeeps) {
  std::vector<float> values(32, 1.0f);
  values[3] = -511.0f;
  const Tensor x = of({1, 32}, values);
  const Tensor clipped = dequantize(quantize_mx(x, {.mode = MxScaleMode::floor}), DType::f32);
  const Tensor kept = dequantize(quantize_mx(x, {.mode = MxScaleMode::rceil}), DType::f32);
  EXPECT_EQ(clipped.data<float>()[3], -448.0f);
  EXPECT_EQ(kept.data<float>()[3], -512.0f);
}

TEST(MxQuantize, NonFinitePoisonsItsBlockOnly) {
  for (const float bad : {kNan, -kNan, kInf, -kInf}) {
    for (const ElementFormat element : kElements) {
      for (const MxScaleMode mode : kModes) {
        for (const Orientation orientation : {Orientation::natural, Orientation::transposed}) {
          std::vector<float> values(64, 1.0f);
          values[5] = bad;
          const bool natural = orientation == Orientation::natural;
          // The second block holds no bad value: in a second row, or in the lower half of the only column.
          const Tensor x = of(natural ? Shape{2, 32} : Shape{64, 1}, values);
          const QuantTensor q = quantize_mx(x, {element, mode, orientation});
          EXPECT_EQ(bytes(q.scales())[0], 255);
          EXPECT_LT(bytes(q.scales())[1], 255);
          dispatch_element<E4m3, E5m2, E2m3, E3m2, E2m1>(element, "test", [&]<class Element>() {
            const int code = Element::kBits == 4 ? Element::kNanCode * 0x11 : Element::kNanCode;
            for (std::int64_t i = 0; i < 32 * Element::kBits / (Element::kBits == 4 ? 8 : Element::kBits); ++i)
              EXPECT_EQ(bytes(q.payload())[i], code);
          });
          const Tensor back = dequantize(q, DType::bf16);
          for (std::int64_t i = 0; i < 64; ++i) EXPECT_EQ(std::isnan(float{back.data<bfloat16>()[i]}), i < 32) << i;
        }
      }
    }
  }
}

TEST(MxQuantize, SubnormalBlocksUseTheLeastScale) {
  std::vector<float> values(32, 0.0f);
  values[0] = 0x1p-127f, values[1] = -0x1p-128f, values[2] = std::numeric_limits<float>::denorm_min();
  const QuantTensor q = quantize_mx(of({1, 32}, values), {});
  EXPECT_EQ(bytes(q.scales())[0], 0);
  EXPECT_EQ(bytes(q.payload())[0], E4m3::encode(1.0f));
  EXPECT_EQ(bytes(q.payload())[1], E4m3::encode(-0.5f));
  EXPECT_EQ(bytes(q.payload())[2], 0);
  EXPECT_EQ(dequantize(q, DType::f32).data<float>()[1], -0x1p-128f);
}

TEST(MxQuantize, LargestValuesSurvive) {
  std::vector<float> values(32, 1.0f);
  values[0] = std::numeric_limits<float>::max();
  const QuantTensor q = quantize_mx(of({1, 32}, values), {.mode = MxScaleMode::rceil});
  EXPECT_EQ(bytes(q.scales())[0], 247);
  EXPECT_EQ(dequantize(q, DType::f32).data<float>()[0], kInf);  // 2^128: rounded up by the cast
}

TEST(MxQuantize, RefusesAxesThatBlocksDoNotDivide) {
  EXPECT_THAT(message_of([] { (void)quantize_mx(random_tensor({2, 48}), {}); }), ::testing::HasSubstr("axis of 48"));
  EXPECT_THAT(message_of([] {
                (void)quantize_mx(random_tensor({33, 32}), {.orientation = Orientation::transposed});
              }),
              ::testing::HasSubstr("axis of 33"));
}

float nvfp4_value(const QuantTensor& q, std::int64_t i, float global) {
  const int code = bytes(q.payload())[i / 2] >> (i % 2 * 4) & 0xF;
  return E2m1::decode(static_cast<std::uint8_t>(code)) * (global * E4m3::decode(bytes(q.scales())[i / 16]));
}

TEST(Nvfp4Quantize, MatchesTheFormulasElementByElement) {
  const Tensor x = random_tensor<bfloat16>({3, 5, 48});
  const Tensor global = nvfp4_global_scale(amax(x, Granularity::tensor));
  for (const bool two_levels : {false, true}) {
    const QuantTensor q = two_levels ? quantize_nvfp4(x, global) : quantize_nvfp4(x);
    const float g = two_levels ? *global.data<float>() : 1.0f;
    ASSERT_EQ(q.scales().shape(), (Shape{3, 5, 3}));
    const Tensor wide = dequantize(q, DType::f32), narrow = dequantize(q, DType::bf16);
    for (std::int64_t b = 0; b < x.numel() / 16; ++b) {
      float most = 0;
      for (std::int64_t i = 0; i < 16; ++i) most = std::max(most, std::abs(float{x.data<bfloat16>()[b * 16 + i]}));
      const Nvfp4BlockScale scale = two_levels ? nvfp4_block_scale(most, g) : nvfp4_block_scale(most);
      ASSERT_EQ(bytes(q.scales())[b], scale.code);
      for (std::int64_t i = b * 16; i < b * 16 + 16; ++i) {
        const int code = bytes(q.payload())[i / 2] >> (i % 2 * 4) & 0xF;
        ASSERT_EQ(code, E2m1::encode(float{x.data<bfloat16>()[i]} * scale.multiplier));
        ASSERT_EQ(wide.data<float>()[i], nvfp4_value(q, i, g));
        ASSERT_EQ(narrow.data<bfloat16>()[i].bits, bfloat16(nvfp4_value(q, i, g)).bits);
      }
    }
  }
}

TEST(Nvfp4Quantize, ZeroTensorGivesZeroAtBothLevels) {
  const Tensor x = Tensor::zeros({2, 32}, DType::bf16);
  for (const QuantTensor& q :
       {quantize_nvfp4(x), quantize_nvfp4(x, nvfp4_global_scale(amax(x, Granularity::tensor)))}) {
    EXPECT_EQ(byte_values(q.scales()), std::vector<int>(4, 0x08));
    EXPECT_EQ(byte_values(q.payload()), std::vector<int>(32, 0));
    for (const int byte : byte_values(dequantize(q, DType::f32))) EXPECT_EQ(byte, 0);
  }
}

TEST(Nvfp4Quantize, NanPoisonsItsBlockAndInfinitySaturates) {
  std::vector<float> values(48, 1.0f);
  values[2] = -kNan;
  values[17] = -kInf;
  const QuantTensor q = quantize_nvfp4(of({1, 48}, values));
  EXPECT_EQ(bytes(q.scales())[0] & 0x7F, 0x7F);
  EXPECT_EQ(bytes(q.payload())[1], 0x33);
  const Tensor back = dequantize(q, DType::f32);
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(std::isnan(back.data<float>()[i]));
  EXPECT_EQ(back.data<float>()[17], -6.0f * 448.0f);
  EXPECT_EQ(back.data<float>()[40], 6.0f * 0.171875f);  // 1 / 6 rounds to 0.171875 in e4m3
}

TEST(Nvfp4Quantize, NonFiniteTensorScaleMakesEverythingNan) {
  std::vector<float> values(32, 1.0f);
  for (const float bad : {kNan, kInf}) {
    values[20] = bad;
    const Tensor x = of({1, 32}, values);
    const Tensor back = dequantize(quantize_nvfp4(x, nvfp4_global_scale(amax(x, Granularity::tensor))), DType::f32);
    for (int i = 0; i < 32; ++i) EXPECT_TRUE(std::isnan(back.data<float>()[i])) << bad << " at " << i;
  }
}

TEST(Nvfp4Quantize, RefusesWhatDoesNotFit) {
  EXPECT_THAT(message_of([] { (void)quantize_nvfp4(random_tensor({2, 24})); }), ::testing::HasSubstr("axis of 24"));
  EXPECT_THAT(message_of([] {
                (void)quantize_nvfp4(random_tensor({2, 32}), of({2}, {1, 1}));
              }),
              ::testing::HasSubstr("global scale is f32[2]"));
  EXPECT_THAT(message_of([] { (void)nvfp4_global_scale(of({2}, {1, 1})); }), ::testing::HasSubstr("one element"));
}

// Large enough for several threads; the tile of a thread must not show in the bits.
TEST(Quantize, BitsDoNotDependOnTheNumberOfThreads) {
  const Tensor x = random_tensor<bfloat16>({192, 320});
  const auto everything = [&] {
    std::vector<int> all;
    const auto add = [&](const QuantTensor& q) {
      for (const Tensor& t : {q.payload(), q.scales(), dequantize(q, DType::bf16)}) {
        const std::vector<int> part = byte_values(t);
        all.insert(all.end(), part.begin(), part.end());
      }
    };
    for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::column})
      add(quantize_float8(x, {.granularity = granularity}));
    add(quantize_mx(x, {}));
    add(quantize_mx(x, {.element = ElementFormat::e2m1, .orientation = Orientation::transposed}));
    add(quantize_nvfp4(x, nvfp4_global_scale(amax(x, Granularity::tensor))));
    return all;
  };
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const std::vector<int> one = everything();
  omp_set_num_threads(3);
  const std::vector<int> three = everything();
  omp_set_num_threads(threads);
  EXPECT_EQ(one, three);
}

TEST(Quantize, EmptyTensorsPassThrough) {
  for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::column})
    EXPECT_EQ(dequantize(quantize_float8(Tensor::empty({0, 64}, DType::f32), {.granularity = granularity}), DType::f32)
                  .shape(),
              (Shape{0, 64}));
  EXPECT_EQ(dequantize(quantize_mx(Tensor::empty({0, 64}, DType::f32), {}), DType::f32).shape(), (Shape{0, 64}));
  EXPECT_EQ(dequantize(quantize_nvfp4(Tensor::empty({0, 64}, DType::f32)), DType::bf16).shape(), (Shape{0, 64}));
}

TEST(Quantize, PlanningDeviceHasShapesAndNoValues) {
  const Tensor x = Tensor::empty({64, 96}, DType::bf16, {DeviceType::meta, 0});
  const QuantTensor rows = quantize_float8(x, {.granularity = Granularity::row});
  EXPECT_TRUE(rows.device().is_meta());
  EXPECT_EQ(rows.scales().shape(), (Shape{64, 1}));
  const QuantTensor blocks = quantize_mx(x, {.element = ElementFormat::e2m1, .orientation = Orientation::transposed});
  EXPECT_EQ(blocks.payload().nbytes(), std::size_t{96 * 64 / 2});
  EXPECT_EQ(dequantize(blocks, DType::bf16).shape(), (Shape{64, 96}));
}

}  // namespace
}  // namespace quench
