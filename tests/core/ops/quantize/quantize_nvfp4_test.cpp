#include "core/ops/quantize/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/ops/quantize/round_nvfp4.h"
#include "tests/core/ops/golden_file.h"
#include "tests/core/ops/quantize/quantize_inputs.h"

namespace quench {
namespace {

using namespace quench::testing;

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

TEST(RoundNvfp4, MatchesCastAndDequantization) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = dtype == DType::f32 ? random_tensor<float>({3, 5, 48}) : random_tensor<bfloat16>({3, 5, 48});
    for (const Tensor& global : {Tensor(), nvfp4_global_scale(amax(x, Granularity::tensor))}) {
      const Tensor expected = dequantize(quantize_nvfp4(x, global), dtype), out = Tensor::empty_like(x);
      round_nvfp4({.x = x, .global_scale = global, .out = out});
      EXPECT_TRUE(same_bytes(out, expected));
      const Tensor own = x.clone();
      round_nvfp4({.x = own, .global_scale = global, .out = own});
      EXPECT_TRUE(same_bytes(own, expected)) << "in place";
    }
  }
}

TEST(RoundNvfp4, RefusesWhatDoesNotFit) {
  const Tensor x = random_tensor({2, 32});
  EXPECT_THAT(message_of([&] {
                round_nvfp4({.x = random_tensor({2, 24}), .global_scale = {}, .out = x});
              }),
              ::testing::HasSubstr("not a multiple of 16"));
  EXPECT_THAT(message_of([&] {
                round_nvfp4({.x = x, .global_scale = of({2}, {1, 1}), .out = x});
              }),
              ::testing::HasSubstr("global_scale"));
}

}  // namespace
}  // namespace quench
