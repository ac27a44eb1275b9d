// GEMMs of MXFP8 and NVFP4 operands on the CPU against sums in f64.

#include "core/ops/block_scaled_gemm.h"

#include <gmock/gmock.h>

#include "core/number/float4.h"
#include "core/ops/quantize/quantize.h"
#include "tests/core/ops/block_scaled_cases.h"

namespace quench::testing {
namespace {

using ::testing::HasSubstr;

// code * scale in f64.
std::vector<double> exact_blocks(const QuantTensor& x) {
  const bool nvfp4 = x.format().element == ElementFormat::e2m1;
  const auto* codes = static_cast<const std::uint8_t*>(x.payload().raw_data());
  const auto* scales = static_cast<const std::uint8_t*>(x.scales().raw_data());
  const double global = x.global_scale().defined() ? x.global_scale().data<float>()[0] : 1.0;
  std::vector<double> result(static_cast<std::size_t>(x.shape().numel()));
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (nvfp4)
      result[i] = E2m1::decode(static_cast<std::uint8_t>(codes[i / 2] >> (i % 2 * 4) & 0xF)) *
                  static_cast<double>(E4m3::decode(scales[i / kNvfp4BlockSize])) * global;
    else
      result[i] = std::ldexp(static_cast<double>(E4m3::decode(codes[i])), scales[i / kMxBlockSize] - 127);
  }
  return result;
}

void check_against_f64(const BlockScaledCase& c, std::uint32_t seed) {
  SCOPED_TRACE(c.describe());
  Generator random(seed);
  const QuantTensor a = c.operand(random, c.m), b = c.operand(random, c.n);
  const Tensor out = random.normal({c.m, c.n}, c.dtype);
  if (c.beta == 0.0f) fill(out, std::nan(""));  // must not be read
  const auto x = exact_blocks(a), w = exact_blocks(b), old = values(out);
  block_scaled_gemm({.a = a, .b = b, .c = out, .beta = c.beta});
  const auto got = values(out);
  for (std::int64_t i = 0; i < c.m; ++i)
    for (std::int64_t j = 0; j < c.n; ++j) {
      const auto at = static_cast<std::size_t>(i * c.n + j);
      double sum = 0, magnitude = 0;
      for (std::int64_t p = 0; p < c.k; ++p) {
        const double term = x[static_cast<std::size_t>(i * c.k + p)] * w[static_cast<std::size_t>(j * c.k + p)];
        sum += term;
        magnitude += std::abs(term);
      }
      if (c.beta != 0.0f) sum += c.beta * old[at];
      const double tolerance = 0x1.0p-20 * (magnitude + std::abs(sum)) + 1.01 * rounding(c.dtype) * std::abs(sum);
      ASSERT_NEAR(got[at], sum, tolerance) << "row " << i << ", column " << j;
    }
}

TEST(BlockScaledGemm, EveryFormAgainstF64) {
  std::uint32_t seed = 1;
  for (const BlockScaledForm form : kBlockScaledForms)
    for (const DType dtype : {DType::bf16, DType::f32})
      for (const float beta : {0.0f, 1.0f, -0.5f})
        for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{17, 24, 64}, {1, 1, 32}, {130, 5, 96}})
          check_against_f64({m, n, k, form, dtype, beta}, ++seed);
}

TEST(BlockScaledGemm, EmptySizes) {
  Generator random(1);
  const BlockScaledCase c{4, 8, 0, BlockScaledForm::mxfp8, DType::f32, 2.0f};
  const Tensor out = random.normal({4, 8}, DType::f32);
  const auto old = values(out);
  block_scaled_gemm({.a = c.operand(random, 4), .b = c.operand(random, 8), .c = out, .beta = 2.0f});
  const auto got = values(out);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], 2.0 * old[i]);
  const BlockScaledCase none{0, 8, 32, BlockScaledForm::mxfp8, DType::f32, 0.0f};
  block_scaled_gemm(
      {.a = none.operand(random, 0), .b = none.operand(random, 8), .c = Tensor::empty({0, 8}, DType::f32)});
}

TEST(BlockScaledGemm, NamesBadOperands) {
  Generator random(1);
  const auto message = [](const BlockScaledGemmArgs& args) -> std::string {
    try {
      block_scaled_gemm(args);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  const BlockScaledCase mx{4, 8, 32, BlockScaledForm::mxfp8, DType::bf16, 0.0f};
  BlockScaledCase one = mx, two = mx;
  one.form = BlockScaledForm::nvfp4_one_level;
  two.form = BlockScaledForm::nvfp4;
  const Tensor c = Tensor::empty({4, 8}, DType::bf16);
  const QuantTensor a = mx.operand(random, 4), b = mx.operand(random, 8);
  EXPECT_THAT(message({.a = a, .b = a, .c = c}), HasSubstr("expected 8 rows of MXFP8 or NVFP4"));
  EXPECT_THAT(message({.a = a, .b = one.operand(random, 8), .c = c}), HasSubstr("differ in format"));
  EXPECT_THAT(message({.a = two.operand(random, 4), .b = one.operand(random, 8), .c = c}),
              HasSubstr("has a global scale"));
  EXPECT_THAT(
      message({.a = quantize_mx(random.normal({4, 32}, DType::f32), {.element = ElementFormat::e5m2}), .b = b, .c = c}),
      HasSubstr("expected 4 rows of MXFP8 or NVFP4"));
  EXPECT_THAT(message({.a = a, .b = b, .c = Tensor::empty({4, 8}, DType::i32)}), HasSubstr("expected a bf16 or f32"));
}

TEST(BlockScaledGemm, NoTensorCoresOnCpuAndMeta) {
  for (const ElementFormat element : {ElementFormat::e4m3, ElementFormat::e2m1}) {
    EXPECT_FALSE(has_block_scaled_gemms({}, element));
    EXPECT_FALSE(has_block_scaled_gemms({DeviceType::meta, 0}, element));
  }
}

}  // namespace
}  // namespace quench::testing
