// int8_rowwise compared with TorchAO's int8 mixed-precision training (tests/reference/make_int8_rowwise.py), and int8
// casts.

#include <gtest/gtest.h>

#include "core/json/json.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/scaled_gemm.h"
#include "tests/recipes/float8_testing.h"
#include "tests/reference_numbers.h"
#include "tests/testing.h"

namespace quench::recipes {
namespace {

using testing::mixed;

constexpr std::int64_t kM = 24, kN = 16, kK = 32;

Tensor matrix(std::int64_t rows, std::int64_t columns, std::uint32_t first, DType dtype) {
  const Tensor x = Tensor::zeros({rows, columns}, DType::f32);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::uint32_t bits = mixed(static_cast<std::uint32_t>(i) + first);
    if (i / columns != 5)
      x.data<float>()[i] =
          std::ldexp(static_cast<float>(static_cast<int>(bits >> 24) - 128), -static_cast<int>(bits % 6));
  }
  if (dtype == DType::f32) return x;
  const Tensor result = Tensor::empty(x.shape(), dtype);
  cast({x, result});
  return result;
}

// Bits of f32 or bf16 values as f32.
float value_of(std::int64_t bits, DType dtype) {
  return dtype == DType::f32 ? bit_cast<float>(static_cast<std::int32_t>(bits))
                             : static_cast<float>(bfloat16::from_bits(static_cast<std::uint16_t>(bits)));
}

void expect_values(const Tensor& ours, const Json& bits, DType dtype, double relative) {
  const Tensor values = testing::as_f32(ours);
  const auto& theirs = bits.as_array();
  ASSERT_EQ(static_cast<std::int64_t>(theirs.size()), values.numel());
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const float expected = value_of(theirs[i].as_int(), dtype);
    EXPECT_NEAR(values.data<float>()[i], expected, relative * std::abs(expected)) << i;
  }
}

void expect_codes(const QuantTensor& ours, const Json& theirs, DType dtype) {
  EXPECT_EQ(testing::checksum({static_cast<const std::byte*>(ours.payload().raw_data()), ours.payload().nbytes()}),
            theirs.at("codes").as_string());
  expect_values(ours.scales(), theirs.at("scales"), dtype, 0);
}

class Int8Golden : public ::testing::TestWithParam<DType> {};

TEST_P(Int8Golden, CodesScalesAndGemmsAreTorchAos) {
  const DType dtype = GetParam();
  const Json reference = Json::parse_file(quench::testing::source_dir() / "tests/reference/int8_rowwise.json")
                             .at(std::string(to_string(dtype)));
  const testing::LinearCase c{matrix(kM, kK, 1, dtype), matrix(kN, kK, 100'001, dtype), matrix(kM, kN, 200'001, dtype)};

  expect_codes(quantize_float8(c.x, {.element = ElementFormat::int8, .granularity = Granularity::row}),
               reference.at("rows"), dtype);
  const Tensor scale = float8_scale(amax(c.x, Granularity::column), ElementFormat::int8, false, dtype);
  expect_codes(cast_float8(c.x, scale, ElementFormat::int8, Granularity::column, Orientation::transposed),
               reference.at("columns"), dtype);

  const testing::LinearResult ours = run_linear(*testing::make_kernel("int8_rowwise", c, {}), c, {}, dtype);
  expect_values(ours.y, reference.at("y"), dtype, 0);
  expect_values(ours.dx, reference.at("dx"), dtype, 0);
  // TorchAO multiplies by the scales of x first: one f32 rounding apart.
  expect_values(ours.dw, reference.at("dw"), dtype, dtype == DType::f32 ? 0x1p-22 : 0x1p-7);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Int8Golden, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST(Int8Code, RoundsToNearestEvenAndSaturates) {
  const auto code = [](float x) { return static_cast<int>(static_cast<std::int8_t>(Int8Code::encode(x))); };
  EXPECT_EQ(code(2.5f), 2);
  EXPECT_EQ(code(-3.5f), -4);
  EXPECT_EQ(code(0.49f), 0);
  EXPECT_EQ(code(1e9f), 127);
  EXPECT_EQ(code(-1e9f), -128);
  EXPECT_EQ(code(std::numeric_limits<float>::infinity()), 127);
  EXPECT_EQ(code(std::numeric_limits<float>::quiet_NaN()), 0);
}

TEST(Int8Code, StochasticRoundingIsUnbiasedAndKeepsIntegers) {
  for (const float x : {-127.0f, -3.0f, 0.0f, 5.0f, 127.0f})
    for (const std::uint32_t random : {0u, 1u, 32768u, 65535u})
      EXPECT_EQ(Int8Code::decode(Int8Code::encode_stochastic(x, random)), x);
  for (const float x : {-126.75f, -0.25f, 0.125f, 63.5f, 126.9375f}) {
    double sum = 0;
    for (std::uint32_t random = 0; random < 65536; ++random)
      sum += Int8Code::decode(Int8Code::encode_stochastic(x, random));
    EXPECT_NEAR(sum / 65536, x, 1e-4) << x;
  }
  EXPECT_EQ(Int8Code::decode(Int8Code::encode_stochastic(127.9f, 65535)), 127.0f);
}

// Not silent: the whole row of the result is NaN.
TEST(Int8Rowwise, NanAndInfinityReachTheResult) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const Tensor a = matrix(8, 32, 1, DType::f32), b = matrix(16, 32, 2, DType::f32),
                 c = Tensor::empty({8, 16}, DType::f32);
    a.data<float>()[32 * 3 + 7] = bad;
    const Float8Options rows{.element = ElementFormat::int8, .granularity = Granularity::row};
    gemm(ScaledGemmArgs{.a = quantize_float8(a, rows), .b = quantize_float8(b, rows), .c = c});
    for (std::int64_t i = 0; i < 8 * 16; ++i) EXPECT_EQ(std::isfinite(c.data<float>()[i]), i / 16 != 3) << i;
  }
}

TEST(Int8Rowwise, RefusesOtherScalesAndMixedOperands) {
  const Tensor x = matrix(16, 32, 1, DType::bf16), c = Tensor::empty({16, 16}, DType::bf16);
  const Float8Options rows{.element = ElementFormat::int8, .granularity = Granularity::row};
  EXPECT_THROW((void)quantize_float8(x, {.element = ElementFormat::int8}), Error);
  EXPECT_THROW(gemm(ScaledGemmArgs{
                   .a = quantize_float8(x, rows), .b = quantize_float8(x, {.granularity = Granularity::row}), .c = c}),
               Error);
}

// The emulation multiplies dequantized values.
TEST(Int8Rowwise, EmulationAgrees) {
  const testing::LinearCase c{testing::random_matrix(40, 48, 1), testing::random_matrix(32, 48, 2),
                              testing::random_matrix(40, 32, 3)};
  const testing::LinearResult ours = run_linear(*testing::make_kernel("int8_rowwise", c, {}), c),
                              emulated = run_linear(*testing::make_kernel("int8_rowwise", c, {}, {.emulate = true}), c);
  for (const auto& [a, b] :
       {std::pair(ours.y, emulated.y), std::pair(ours.dx, emulated.dx), std::pair(ours.dw, emulated.dw)})
    for (std::int64_t i = 0; i < a.numel(); ++i)
      EXPECT_NEAR(static_cast<float>(a.data<bfloat16>()[i]), static_cast<float>(b.data<bfloat16>()[i]),
                  0x1p-7 * std::abs(static_cast<float>(b.data<bfloat16>()[i])));
}

}  // namespace
}  // namespace quench::recipes
