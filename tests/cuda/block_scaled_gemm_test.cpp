// MXFP8 and NVFP4 GEMMs on the GPU against the CPU's, and what cuBLASLt is asked for.

#include "core/ops/block_scaled_gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "core/cuda/common/launch.h"
#include "core/cuda/gemm/gemm_device.h"
#include "tests/core/ops/block_scaled_cases.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

constexpr int kBlackwell = 100;
constexpr int kE2m1 = 33;  // CUDA_R_4F_E2M1

QuantTensor to_gpu(const QuantTensor& x) {
  return {x.format(),           x.shape(),           x.source_dtype(),
          x.payload().to(kGpu), x.scales().to(kGpu), x.global_scale().defined() ? x.global_scale().to(kGpu) : Tensor()};
}

// Operands in bf16 where the tensor cores lack the format: exact for MXFP8, two roundings of 2^-9 a term for NVFP4.
void expect_cpus_result(const BlockScaledCase& c, std::uint32_t seed) {
  SCOPED_TRACE(c.describe());
  Generator random(seed);
  const QuantTensor a = c.operand(random, c.m), b = c.operand(random, c.n);
  const Tensor old = random.normal({c.m, c.n}, c.dtype), expected = old.clone(), out = old.to(kGpu);
  block_scaled_gemm({.a = a, .b = b, .c = expected, .beta = c.beta});
  block_scaled_gemm({.a = to_gpu(a), .b = to_gpu(b), .c = out, .beta = c.beta});
  // |a| |b|^T by Cauchy-Schwarz: norms of the rows.
  const auto norms = [](const QuantTensor& x) {
    const auto all = values(dequantize(x, DType::f32));
    std::vector<double> result(static_cast<std::size_t>(x.shape()[0]));
    for (std::size_t i = 0; i < all.size(); ++i) result[i / static_cast<std::size_t>(x.shape()[1])] += all[i] * all[i];
    for (double& r : result) r = std::sqrt(r);
    return result;
  };
  const auto of_a = norms(a), of_b = norms(b), got = values(on_cpu(out)), cpus = values(expected), before = values(old);
  const double per_term = c.form == BlockScaledForm::mxfp8 ? 0x1p-12 : 0x1p-8;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto n = static_cast<std::size_t>(c.n);
    const double added = std::abs(c.beta) * std::abs(before[i]);
    // The GEMM and the sum are rounded once each.
    const double tolerance =
        per_term * of_a[i / n] * of_b[i % n] + 2.02 * rounding(c.dtype) * (std::abs(cpus[i]) + added);
    ASSERT_NEAR(got[i], cpus[i], tolerance) << "element " << i;
  }
}

TEST(CudaBlockScaledGemm, GivesTheCpusResult) {
  std::uint32_t seed = 1;
  for (const BlockScaledForm form : kBlockScaledForms)
    for (const DType dtype : {DType::bf16, DType::f32})
      for (const float beta : {0.0f, 1.0f})
        for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{128, 128, 128},
                                      {256, 384, 512},
                                      {48, 80, 96},
                                      {130, 24, 160},
                                      {17, 33, 64},
                                      {512, 256, 2048}})
          expect_cpus_result({m, n, k, form, dtype, beta}, ++seed);
}

cuda::GemmProblem problem_of(BlockScaledForm form, DType dtype, float beta = 0.0f) {
  const BlockScaledCase c{256, 384, 512, form, dtype, beta};
  Generator random(1);
  return cuda::GemmProblem::of(BlockScaledGemmArgs{
      .a = c.operand(random, c.m), .b = c.operand(random, c.n), .c = Tensor::empty({c.m, c.n}, dtype), .beta = beta});
}

// TN with B first: [N,K] and [M,K] are K x N and K x M by columns. Runs without a GPU.
TEST(CudaBlockScaledGemm, DescriptorsMatchFormat) {
  const auto described = [](BlockScaledForm form, DType dtype) {
    return cuda::GemmPlan(problem_of(form, dtype)).describe();
  };
  EXPECT_EQ(described(BlockScaledForm::mxfp8, DType::bf16),
            fmt::format("A {0} 512x384 ld 512 T, B {0} 512x256 ld 512 N, C {1} 384x256 ld 384, D {1} 384x256 ld 384, "
                        "scales 2 2, pointer mode 0",
                        static_cast<int>(CUDA_R_8F_E4M3), static_cast<int>(CUDA_R_16BF)));
  const auto nvfp4 = [](int result, int pointers) {
    return fmt::format(
        "A {0} 512x384 ld 512 T, B {0} 512x256 ld 512 N, C {1} 384x256 ld 384, D {1} 384x256 ld 384, "
        "scales 1 1, pointer mode {2}",
        kE2m1, result, pointers);
  };
  EXPECT_EQ(described(BlockScaledForm::nvfp4_one_level, DType::f32), nvfp4(CUDA_R_32F, 0));
  EXPECT_EQ(described(BlockScaledForm::nvfp4, DType::bf16), nvfp4(CUDA_R_16BF, 1));
  EXPECT_EQ(problem_of(BlockScaledForm::mxfp8, DType::bf16, 1.0f).to_string(),
            "f8_e4m3 x f8_e4m3 by block of 32->bf16 NT m256 n384 k512 ld 512 512 384 align 16 16 16 add");
  EXPECT_EQ(problem_of(BlockScaledForm::nvfp4, DType::f32).to_string(),
            "f4_e2m1 x f4_e2m1 by block of 16 global->f32 NT m256 n384 k512 ld 512 512 384 align 16 16 16");
}

// cuBLASLt refuses the formats before Blackwell, and takes them there.
TEST(CudaBlockScaledGemm, HeuristicKnowsTheHardware) {
  if (std::getenv("QUENCH_CUDA_CAPABILITY") != nullptr) GTEST_SKIP() << "the library sees the GPU's own capability";
  const Tensor scales = Tensor::zeros({1 << 16}, DType::u8, kGpu);
  const cuda::GemmCall call{.scale_a = scales.raw_data(), .scale_b = scales.raw_data()};
  const bool blackwell = cuda::compute_capability(kGpu) >= kBlackwell;
  const cuda::DeviceGuard guard(kGpu);
  for (const BlockScaledForm form : kBlockScaledForms)
    for (const DType dtype : {DType::bf16, DType::f32})
      EXPECT_EQ(cuda::has_algorithm(problem_of(form, dtype), call, kGpu), blackwell)
          << static_cast<int>(form) << " " << to_string(dtype);
  EXPECT_EQ(has_block_scaled_gemms(kGpu, ElementFormat::e4m3), blackwell);
  EXPECT_EQ(has_block_scaled_gemms(kGpu, ElementFormat::e2m1), blackwell);
}

// Native GEMMs of sizes that training uses; NVFP4 without the roundings to bf16 of the fallback.
TEST(CudaBlockScaledGemm, BlackwellMultipliesNatively) {
  if (!has_block_scaled_gemms(kGpu, ElementFormat::e4m3))
    GTEST_SKIP() << "compute capability " << cuda::compute_capability(kGpu) << ": no block-scaled tensor cores";
  std::uint32_t seed = 100;
  for (const BlockScaledForm form : kBlockScaledForms)
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{512, 1024, 768}, {1024, 512, 4096}}) {
      const BlockScaledCase c{m, n, k, form, DType::f32, 0.0f};
      SCOPED_TRACE(c.describe());
      Generator random(++seed);
      const QuantTensor a = c.operand(random, m), b = c.operand(random, n);
      const Tensor expected = Tensor::empty({m, n}, DType::f32), out = Tensor::empty({m, n}, DType::f32, kGpu);
      block_scaled_gemm({.a = a, .b = b, .c = expected});
      block_scaled_gemm({.a = to_gpu(a), .b = to_gpu(b), .c = out});
      double signal = 0, noise = 0;
      const auto got = values(on_cpu(out)), cpus = values(expected);
      for (std::size_t i = 0; i < got.size(); ++i) {
        signal += cpus[i] * cpus[i];
        noise += (got[i] - cpus[i]) * (got[i] - cpus[i]);
      }
      EXPECT_LT(noise, 1e-9 * signal);
    }
}

}  // namespace
}  // namespace quench::testing
