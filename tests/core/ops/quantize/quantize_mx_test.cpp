#include "core/ops/quantize/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/ops/quantize/round_mx.h"
#include "tests/core/ops/golden_file.h"
#include "tests/core/ops/quantize/quantize_inputs.h"

namespace quench {
namespace {

using namespace quench::testing;

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

TEST(RoundMx, MatchesCastAndDequantization) {
  const Tensor x = random_tensor<bfloat16>({2, 64, 96});
  for (const ElementFormat element : {ElementFormat::e4m3, ElementFormat::e2m1})
    for (const Orientation orientation : {Orientation::natural, Orientation::transposed}) {
      const Tensor out = Tensor::empty_like(x);
      round_mx({.x = x, .out = out, .element = element, .orientation = orientation});
      EXPECT_TRUE(
          same_bytes(out, dequantize(quantize_mx(x, {.element = element, .orientation = orientation}), DType::bf16)));
    }
  EXPECT_THAT(message_of([&] { round_mx({.x = x, .out = x, .element = ElementFormat::e2m3}); }),
              ::testing::HasSubstr("expected e4m3 or e2m1"));
}

}  // namespace
}  // namespace quench
