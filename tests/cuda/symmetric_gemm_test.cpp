#include "core/ops/optimizer/symmetric_gemm.h"

#include "tests/core/ops/optimizer/symmetric_gemm_cases.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

// Whole tiles and parts of them, fewer tiles than SMs and more.
TEST(CudaSymmetricGemm, GivesTheProducts) {
  for (const bool transpose : {false, true})
    for (const auto& [batch, n, k] : {std::array<std::int64_t, 3>{1, 256, 64},
                                      {1, 512, 200},
                                      {3, 264, 8},
                                      {2, 520, 72},
                                      {2, 776, 320},
                                      {5, 1288, 40}})
      for (const bool adds : {false, true}) {
        SCOPED_TRACE(fmt::format("batch {} n {} k {} transpose {} adds {}", batch, n, k, transpose, adds));
        const SymmetricCase c(DType::bf16, batch, n, k, transpose, adds);
        const SymmetricGemmArgs args = c.args(kGpu);
        symmetric_gemm(args);
        c.check(on_cpu(args.c), rounding(DType::bf16) * 1.01);
      }
}

// Sizes and dtypes that have no tiles: the product, the addend and the diagonal are rounded apart.
TEST(CudaSymmetricGemm, OtherSizesAndDtypes) {
  for (const auto& [dtype, n, k] : {std::tuple{DType::bf16, 40, 24}, {DType::bf16, 300, 33}, {DType::f32, 260, 64}})
    for (const bool transpose : {false, true})
      for (const bool adds : {false, true}) {
        SCOPED_TRACE(fmt::format("{} n {} k {} transpose {} adds {}", to_string(dtype), n, k, transpose, adds));
        const SymmetricCase c(dtype, 2, n, k, transpose, adds);
        const SymmetricGemmArgs args = c.args(kGpu);
        symmetric_gemm(args);
        const Tensor got = on_cpu(args.c);
        for (std::int64_t i = 0; i < got.numel(); ++i) {
          const auto at = static_cast<std::size_t>(i);
          ASSERT_NEAR(get_element(got, i), c.expected[at],
                      (3 * rounding(dtype) + 0x1p-19) * (c.magnitude[at] + std::abs(c.expected[at]) + 20));
        }
      }
}

TEST(CudaSymmetricGemm, BitsDoNotDependOnTheBatch) {
  Generator random(7);
  const Tensor a = on_gpu(random.normal({7, 1024, 512}, DType::bf16)),
               c = Tensor::empty({7, 1024, 1024}, DType::bf16, kGpu),
               alone = Tensor::empty({1, 1024, 1024}, DType::bf16, kGpu);
  for (int repeat = 0; repeat < 5; ++repeat) {
    symmetric_gemm({.a = a, .b = a, .c = c});
    for (std::int64_t i = 0; i < 7; ++i) {
      symmetric_gemm({.a = a.narrow(0, i, 1), .b = a.narrow(0, i, 1), .c = alone});
      EXPECT_TRUE(same_bits(on_cpu(alone), on_cpu(c.narrow(0, i, 1).clone()))) << i;
    }
  }
}

}  // namespace
}  // namespace quench::testing
