#include "core/ops/gemm.h"

#include "core/device/determinism.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

struct GemmCase {
  std::int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, bias = false;
  float alpha = 1.0f, beta = 0.0f;
  DType dtype = DType::bf16, c_dtype = DType::bf16;
  std::int64_t gap = 0;  // elements between rows; then addresses are not aligned either
  bool addend = false;   // beta multiplies another matrix than c
};

Tensor operand(Generator& random, const GemmCase& c, const Shape& shape, DType dtype) {
  return c.gap > 0 ? random.normal_view(shape, dtype, c.gap) : random.normal(shape, dtype);
}

void check_against_f64(const GemmCase& c, std::uint32_t seed) {
  SCOPED_TRACE(fmt::format("m {} n {} k {} ta {} tb {} bias {} alpha {} beta {} {} -> {} gap {}", c.m, c.n, c.k,
                           c.transpose_a, c.transpose_b, c.bias, c.alpha, c.beta, to_string(c.dtype),
                           to_string(c.c_dtype), c.gap));
  Generator random(seed);
  const Tensor a = operand(random, c, c.transpose_a ? Shape{c.k, c.m} : Shape{c.m, c.k}, c.dtype);
  const Tensor b = operand(random, c, c.transpose_b ? Shape{c.n, c.k} : Shape{c.k, c.n}, c.dtype);
  const Tensor out = operand(random, c, {c.m, c.n}, c.c_dtype);
  const Tensor bias = c.bias ? random.normal({c.n}, c.dtype) : Tensor();
  const Tensor addend = c.addend ? operand(random, c, {c.m, c.n}, c.c_dtype) : Tensor();
  if (c.beta == 0.0f || c.addend) fill(out, std::nan(""));  // must not be read
  if (c.beta == 0.0f && c.addend) fill(addend, std::nan(""));
  const auto va = values(a), vb = values(b), old = values(c.addend ? addend : out),
             vbias = c.bias ? values(bias) : std::vector<double>();
  const Tensor gpu_out = on_gpu(out), gpu_addend = on_gpu(addend);
  gemm({on_gpu(a), on_gpu(b), gpu_out, c.transpose_a, c.transpose_b, c.alpha, c.beta, on_gpu(bias), gpu_addend});
  if (c.addend) {
    ASSERT_TRUE(close(on_cpu(gpu_addend), values(addend), 0, 0));  // read, not written
  }
  const std::vector<double> got = values(on_cpu(gpu_out));
  for (std::int64_t i = 0; i < c.m; ++i)
    for (std::int64_t j = 0; j < c.n; ++j) {
      double sum = 0, magnitude = 0;
      for (std::int64_t p = 0; p < c.k; ++p) {
        const double term = va[static_cast<std::size_t>(c.transpose_a ? p * c.m + i : i * c.k + p)] *
                            vb[static_cast<std::size_t>(c.transpose_b ? j * c.k + p : p * c.n + j)];
        sum += term;
        magnitude += std::abs(term);
      }
      const auto at = static_cast<std::size_t>(i * c.n + j);
      const double expected = c.alpha * sum + (c.beta != 0.0f ? c.beta * old[at] : 0.0) +
                              (c.bias ? vbias[static_cast<std::size_t>(j)] : 0.0);
      // Tensor cores add f32 sums with a few bits less than IEEE addition keeps; then one rounding to c's dtype.
      // With bf16 c and beta, cuBLASLt rounds the product, with its bias, before it adds c.
      const double added = c.bias ? std::abs(vbias[static_cast<std::size_t>(j)]) : 0.0;
      const double product = c.beta != 0.0f && c.c_dtype == DType::bf16 ? std::abs(c.alpha * sum) + added : 0.0;
      // Next to an addend, or with unaligned rows, its errors are as if what stands before the bias were rounded too.
      const double without_bias = c.addend && c.bias && c.c_dtype == DType::bf16
                                      ? std::abs(c.alpha * sum + (c.beta != 0.0f ? c.beta * old[at] : 0.0))
                                      : 0.0;
      const double tolerance = 0x1.0p-20 * (std::abs(c.alpha) * magnitude + std::abs(expected)) +
                               rounding(c.c_dtype) * (std::abs(expected) + product + without_bias);
      ASSERT_NEAR(got[at], expected, tolerance) << "row " << i << ", column " << j;
    }
}

TEST(CudaGemm, EveryTransposeAndDtype) {
  std::uint32_t seed = 1;
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                {1, 40, 64},
                                {3, 200, 136},
                                {4, 72, 2048},
                                {5, 7, 3},
                                {17, 33, 65},
                                {64, 128, 96},
                                {130, 257, 264}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const auto& [dtype, c_dtype] :
             {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
          for (const std::int64_t gap : {0, 3})
            check_against_f64({m, n, k, ta, tb, false, 1.0f, 0.0f, dtype, c_dtype, gap}, ++seed);
}

// Rows of b that one, two and four warps share (core/cuda/gemm/gemv.cu), and numbers of columns that leave some without
// work.
TEST(CudaGemm, FewRowsTimesLongRows) {
  std::uint32_t seed = 300;
  for (const std::int64_t m : {1, 2, 3, 4})
    for (const std::int64_t k : {1544, 2048, 3072, 4104, 6144, 8192, 14336})
      for (const std::int64_t n : {1, 37})
        for (const auto& [dtype, c_dtype] :
             {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}}) {
          check_against_f64({m, n, k, false, true, false, 1.0f, 0.0f, dtype, c_dtype}, ++seed);
          check_against_f64({m, n, k, false, true, dtype == c_dtype, 0.5f, -2.0f, dtype, c_dtype}, ++seed);
        }
}

TEST(CudaGemm, AlphaBetaAndBias) {
  std::uint32_t seed = 100;
  for (const std::int64_t m : {2, 9})
    for (const bool bias : {false, true})
      for (const float alpha : {1.0f, -2.0f})
        for (const float beta : {0.0f, 1.0f, 0.25f})
          for (const auto& [dtype, c_dtype] :
               {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
            check_against_f64({m, 40, 24, false, true, bias, alpha, beta, dtype, c_dtype}, ++seed);
}

TEST(CudaGemm, AnAddendBesideTheResult) {
  std::uint32_t seed = 200;
  for (const std::int64_t m : {3, 40, 200})
    for (const std::int64_t k : {0, 24, 264})
      for (const bool bias : {false, true})
        for (const float beta : {0.0f, 1.0f, -4.0f})
          for (const auto& [dtype, c_dtype] :
               {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
            check_against_f64(
                {m, 72, k, k == 264, true, bias, 0.5f, beta, dtype, c_dtype, bias && k == 24 ? 3 : 0, true}, ++seed);
}

TEST(CudaGemm, EmptyShapes) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{0, 4, 4}, {4, 0, 4}, {4, 8, 0}})
    for (const float beta : {0.0f, 0.5f}) check_against_f64({m, n, k, false, true, k == 0, 1.0f, beta}, 7);
}

TEST(CudaGemm, NanAndInfinityReachTheirRowsAndColumnsOnly) {
  Generator random(5);
  for (const std::int64_t m : {3, 40}) {
    const Tensor a = random.normal({m, 64}, DType::bf16), b = random.normal({48, 64}, DType::bf16);
    set_element(a, 64 + 5, std::nan(""));
    set_element(b, 7 * 64 + 1, HUGE_VAL);
    const Tensor expected = Tensor::empty({m, 48}, DType::f32), out = Tensor::empty({m, 48}, DType::f32, kGpu);
    gemm({.a = a, .b = b, .c = expected, .transpose_b = true});
    gemm({.a = on_gpu(a), .b = on_gpu(b), .c = out, .transpose_b = true});
    EXPECT_TRUE(close(on_cpu(out), values(expected), 1e-5, 1e-5));
  }
}

// Large enough for a contest of algorithms. Every candidate gives the product, added to c once, and one of them wins.
TEST(CudaGemm, EveryEntrantOfAContestGivesTheProduct) {
  const GemmTuning tuning;
  Generator random(17);
  const Tensor a = random.normal({512, 640}, DType::bf16), b = random.normal({512, 768}, DType::bf16);
  const Tensor gpu_a = on_gpu(a), gpu_b = on_gpu(b);
  const Tensor expected = Tensor::empty({640, 768}, DType::f32);
  gemm({.a = a, .b = b, .c = expected, .transpose_a = true});
  const auto product = values(expected);
  std::vector<double> twice(product);
  for (double& x : twice) x *= 2;
  for (int call = 0; call < 150; ++call) {
    const Tensor c = Tensor::empty({640, 768}, DType::f32, kGpu);
    gemm({.a = gpu_a, .b = gpu_b, .c = c, .transpose_a = true});
    gemm({.a = gpu_a, .b = gpu_b, .c = c, .transpose_a = true, .beta = 1.0f});
    if (call % 7 == 0) {
      ASSERT_TRUE(close(on_cpu(c), twice, 1e-5, 1e-3)) << "call " << call;
    }
  }
}

// Products so large that tiles are tried which cuBLASLt does not propose. Sums of integers are exact in f32, in any
// order.
TEST(CudaGemm, VariationsOfLargeProductsGiveTheProduct) {
  Generator random(19);
  const std::int64_t m = 2048, n = 2304, k = 12288;
  const auto of_integers = [&random](const Shape& shape) {
    const Tensor x = Tensor::empty(shape, DType::bf16);
    for (std::int64_t i = 0; i < x.numel(); ++i)
      x.data<bfloat16>()[i] = bfloat16(static_cast<float>(random.below(5) - 2));
    return on_gpu(x);
  };
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) {
      const Tensor a = of_integers(transpose_a ? Shape{k, m} : Shape{m, k});
      const Tensor b = of_integers(transpose_b ? Shape{n, k} : Shape{k, n});
      const auto product = [&] {
        Tensor c = Tensor::empty({m, n}, DType::f32, kGpu);
        c.zero();
        gemm({.a = a, .b = b, .c = c, .transpose_a = transpose_a, .transpose_b = transpose_b});
        return c;
      };
      const Tensor expected = on_cpu(product());
      const GemmTuning tuning;
      for (int call = 0; call < 60; ++call) ASSERT_TRUE(same_bits(expected, on_cpu(product()))) << "call " << call;
    }
}

TEST(CudaGemm, LargerProducts) {
  for (const float beta : {0.0f, 1.0f})
    for (const DType result : {DType::bf16, DType::f32})
      check_against_f64({640, 512, 1000, true, false, false, 1.0f, beta, DType::bf16, result}, 11);
}

// Outside GemmTuning nothing is timed: call after call gives the same bits, whatever a contest over the shape does.
TEST(CudaGemm, ProductsOutsideTuningRepeatBitForBit) {
  Generator random(14);
  const Tensor a = on_gpu(random.normal({640, 2048}, DType::bf16)), b = on_gpu(random.normal({512, 2048}, DType::bf16));
  const auto product = [&] {
    const Tensor c = Tensor::empty({640, 512}, DType::f32, kGpu);
    gemm({.a = a, .b = b, .c = c, .transpose_b = true});
    return c;
  };
  const Tensor first = on_cpu(product());
  {
    const GemmTuning tuning;
    for (int call = 0; call < 40; ++call) (void)product();
  }
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(same_bits(first, on_cpu(product())));
}

TEST(CudaGemm, DeterministicProductsRepeatBitForBit) {
  Generator random(13);
  const Tensor a = on_gpu(random.normal({512, 2048}, DType::bf16)), b = on_gpu(random.normal({512, 2048}, DType::bf16));
  set_deterministic(true);
  std::vector<Tensor> results;
  for (int run = 0; run < 3; ++run) {
    const Tensor c = Tensor::empty({512, 512}, DType::bf16, kGpu);
    gemm({.a = a, .b = b, .c = c, .transpose_b = true});
    results.push_back(on_cpu(c));
  }
  set_deterministic(false);
  EXPECT_TRUE(same_bits(results[0], results[1]));
  EXPECT_TRUE(same_bits(results[0], results[2]));
}

}  // namespace
}  // namespace quench::testing
