#include "core/ops/scaled_gemm.h"

#include <gmock/gmock.h>

#include "core/ops/quantize/quantize.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {
namespace {

using ::testing::HasSubstr;

struct Operand {
  ElementFormat element = ElementFormat::e4m3;
  Granularity granularity = Granularity::tensor;
};
constexpr Operand kOperands[] = {{ElementFormat::e4m3, Granularity::tensor},
                                 {ElementFormat::e4m3, Granularity::row},
                                 {ElementFormat::e5m2, Granularity::tensor},
                                 {ElementFormat::e5m2, Granularity::row}};

QuantTensor operand(Generator& random, std::int64_t rows, std::int64_t columns, const Operand& how) {
  const Tensor x = random.normal({rows, columns}, DType::f32);
  for (std::int64_t i = 0; i < x.numel(); ++i)  // rows of different size
    x.data<float>()[i] *= static_cast<float>(1 + 3 * (i / columns % 4));
  return quantize_float8(x, {.element = how.element, .granularity = how.granularity});
}

// code / scale in f64.
std::vector<double> exact(const QuantTensor& x) {
  std::vector<double> result(static_cast<std::size_t>(x.payload().numel()));
  const auto* codes = static_cast<const std::uint8_t*>(x.payload().raw_data());
  const float* scales = x.scales().data<float>();
  for (std::size_t i = 0; i < result.size(); ++i) {
    const float code = x.format().element == ElementFormat::e4m3 ? E4m3::decode(codes[i]) : E5m2::decode(codes[i]);
    const auto row = static_cast<std::int64_t>(i) / x.shape()[1];
    result[i] = static_cast<double>(code) / scales[x.format().granularity == Granularity::row ? row : 0];
  }
  return result;
}

struct ScaledCase {
  std::int64_t m, n, k;
  Operand a, b;
  DType dtype = DType::bf16;
  float beta = 0.0f;
  std::int64_t gap = 0;
  bool fast = false;
};

void check_against_f64(const ScaledCase& c, std::uint32_t seed) {
  SCOPED_TRACE(fmt::format("{} x {} x {}, {} {} x {} {} -> {}, beta {}, gap {}", c.m, c.n, c.k, to_string(c.a.element),
                           to_string(c.a.granularity), to_string(c.b.element), to_string(c.b.granularity),
                           to_string(c.dtype), c.beta, c.gap));
  Generator random(seed);
  const QuantTensor a = operand(random, c.m, c.k, c.a), b = operand(random, c.n, c.k, c.b);
  const Tensor out = c.gap > 0 ? random.normal_view({c.m, c.n}, c.dtype, c.gap) : random.normal({c.m, c.n}, c.dtype);
  if (c.beta == 0.0f) fill(out, std::nan(""));  // must not be read
  const auto x = exact(a), w = exact(b), old = values(out);
  gemm({.a = a, .b = b, .c = out, .beta = c.beta, .fast_accumulation = c.fast});
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
      // f32 operands, products and sums, then one rounding.
      const double tolerance = 0x1.0p-20 * (magnitude + std::abs(sum)) + 1.01 * rounding(c.dtype) * std::abs(sum);
      ASSERT_NEAR(got[at], sum, tolerance) << "row " << i << ", column " << j;
    }
}

TEST(ScaledGemm, EveryFormAgainstF64) {
  std::uint32_t seed = 1;
  for (const Operand& a : kOperands)
    for (const Operand& b : kOperands) {
      if (a.element == ElementFormat::e5m2 && b.element == ElementFormat::e5m2) continue;
      for (const DType dtype : {DType::bf16, DType::f32})
        for (const float beta : {0.0f, 1.0f, -0.5f})
          for (const std::int64_t gap : {0, 3}) check_against_f64({17, 24, 48, a, b, dtype, beta, gap}, ++seed);
    }
}

TEST(ScaledGemm, OddShapes) {
  std::uint32_t seed = 500;
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{1, 1, 1}, {3, 1, 7}, {1, 40, 130}, {5, 7, 33}, {64, 65, 66}})
    for (const bool fast : {false, true})
      for (const float beta : {0.0f, 1.0f})
        check_against_f64({m, n, k, kOperands[1], kOperands[0], DType::bf16, beta, 0, fast}, ++seed);
}

TEST(ScaledGemm, EmptyShapes) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{0, 4, 4}, {4, 0, 4}, {4, 8, 0}})
    for (const float beta : {0.0f, 1.0f})
      for (const DType dtype : {DType::bf16, DType::f32}) {
        const auto zeros = [](std::int64_t rows, std::int64_t columns) {
          const QuantTensor x = QuantTensor::empty({.granularity = Granularity::row}, {rows, columns}, DType::bf16);
          fill(x.scales(), 1.0);
          return x;
        };
        Generator random(7);
        const Tensor c = random.normal({m, n}, dtype);
        std::vector<double> expected = values(c);
        if (beta == 0.0f) std::fill(expected.begin(), expected.end(), 0.0);
        gemm({.a = zeros(m, k), .b = zeros(n, k), .c = c, .beta = beta});
        EXPECT_TRUE(close(c, expected, 0, 0));
      }
}

TEST(ScaledGemm, TransposedOperandsAsViews) {
  Generator random(8);
  const Tensor x = random.normal({32, 24}, DType::f32), w = random.normal({32, 40}, DType::f32);
  const auto columns = [](const Tensor& t) {
    const Tensor scale = float8_scale(amax(t, Granularity::column), ElementFormat::e4m3, false);
    return cast_float8(t, scale, ElementFormat::e4m3, Granularity::column, Orientation::transposed).transposed_view();
  };
  const QuantTensor a = columns(x), b = columns(w);
  const Tensor c = Tensor::empty({24, 40}, DType::f32);
  gemm({.a = a, .b = b, .c = c});
  const auto va = exact(a), vb = exact(b);
  for (std::int64_t i = 0; i < 24; ++i)
    for (std::int64_t j = 0; j < 40; ++j) {
      double sum = 0;
      for (std::int64_t p = 0; p < 32; ++p)
        sum += va[static_cast<std::size_t>(i * 32 + p)] * vb[static_cast<std::size_t>(j * 32 + p)];
      ASSERT_NEAR(c.data<float>()[i * 40 + j], sum, 1e-4);
    }
}

void expect_refused(const ScaledGemmArgs& args, const std::string& words) {
  for (void (*product)(const ScaledGemmArgs&) : {&gemm, &gemm_emulated}) {
    try {
      product(args);
      ADD_FAILURE() << "no error with '" << words << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  }
}

TEST(ScaledGemm, RefusesOperandsThatDoNotFit) {
  Generator random(9);
  const auto make = [&](std::int64_t rows, std::int64_t columns, const Operand& how = {}) {
    return operand(random, rows, columns, how);
  };
  const QuantTensor a = make(4, 16), b = make(8, 16);
  const Tensor c = Tensor::empty({4, 8}, DType::bf16);
  expect_refused({.a = {}, .b = b, .c = c}, "scaled gemm: a is undefined quantized tensor");
  expect_refused({.a = make(5, 16), .b = b, .c = c}, "a is [5, 16] as e4m3 by tensor on cpu; expected 4 rows");
  expect_refused({.a = a, .b = make(9, 16), .c = c}, "b is [9, 16] as e4m3 by tensor on cpu; expected 8 rows");
  expect_refused({.a = a, .b = make(8, 24), .c = c}, "differ in the contraction axis");
  expect_refused({.a = a, .b = make(8, 16, {ElementFormat::e4m3, Granularity::column}), .c = c}, "b is [8, 16]");
  expect_refused({.a = quantize_mx(random.normal({4, 32}, DType::f32), {}), .b = b, .c = c}, "a is [4, 32]");
  expect_refused({.a = a,
                  .b = cast_float8_pair(random.normal({8, 16}, DType::f32),
                                        Tensor::from_values<float>({}, std::vector<float>{1.0f}), ElementFormat::e4m3)
                           .transposed,
                  .c = c},
                 "b is [8, 16] as e4m3 by tensor, transposed");
  expect_refused({.a = make(4, 16, kOperands[2]), .b = make(8, 16, kOperands[3]), .c = c},
                 "are both e5m2, which no tensor core multiplies");
  expect_refused({.a = a, .b = b, .c = Tensor()}, "scaled gemm: c is");
  expect_refused({.a = a, .b = b, .c = Tensor::empty({4, 8}, DType::f16)}, "expected a bf16 or f32 matrix");
  expect_refused({.a = a, .b = b, .c = Tensor::empty({4, 8, 1}, DType::f32)}, "expected a bf16 or f32 matrix");
  expect_refused({.a = a, .b = b, .c = Tensor::empty({8, 4}, DType::f32).transpose(0, 1)}, "contiguous columns");
  expect_refused({.a = a, .b = b, .c = Tensor::empty({4, 8}, DType::f32, Device{DeviceType::meta, 0})}, "on meta");
}

TEST(ScaledGemm, LabelNamesShapesAndFormats) {
  Generator random(10);
  const ScaledGemmArgs args{.a = operand(random, 4, 16, kOperands[1]),
                            .b = operand(random, 8, 16, kOperands[2]),
                            .c = Tensor::empty({4, 8}, DType::bf16),
                            .beta = 1.0f};
  EXPECT_EQ(op_label(args), "float8 gemm 4x8x16 e4m3 row x e5m2 tensor -> bf16 +=");
}

}  // namespace
}  // namespace quench::testing
