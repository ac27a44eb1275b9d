// MXFP8 layers for block-scaled tensor cores on the GPU against the CPU's, whatever path their GEMMs take there.

#include "recipes/mx/linear.h"

#include "recipes/float8/hardware.h"
#include "tests/cuda/gpu.h"
#include "tests/recipes/float8_testing.h"
#include "tests/recipes/recipe_testing.h"

namespace quench::testing {
namespace {

TEST(CudaMxLinear, LayersGiveTheCpusValues) {
  struct Sizes {
    std::int64_t m, n, k;
  };
  std::uint64_t stream = 300;
  for (const Sizes& s : {Sizes{256, 128, 512}, Sizes{100, 72, 96}, Sizes{33, 40, 72}})
    for (const DType dtype : {DType::bf16, DType::f32}) {
      SCOPED_TRACE(fmt::format("{} x {} x {} {}", s.m, s.n, s.k, to_string(dtype)));
      const LinearCase c{random_matrix(s.m, s.k, ++stream, 1.0f, dtype), random_matrix(s.n, s.k, ++stream, 0.1f, dtype),
                         random_matrix(s.m, s.n, ++stream, 1.0f, dtype),
                         random_matrix(1, s.n, ++stream, 1.0f, dtype).view({s.n})};
      const auto kernel = recipes::mx_linear(MxScaleMode::rceil, {});
      const LinearResult gpu = run_linear(*kernel, c, kGpu, DType::f32), cpu = run_linear(*kernel, c, {}, DType::f32);
      EXPECT_LT(distance(as_f32(gpu.y), as_f32(cpu.y)), 1e-3);
      EXPECT_LT(distance(as_f32(gpu.dx), as_f32(cpu.dx)), 1e-3);
      EXPECT_LT(distance(as_f32(gpu.dw), as_f32(cpu.dw)), 1e-3);
    }
}

TEST(CudaMxLinear, TheRecipeTakesThePathOfTheDevice) {
  const bool blackwell = backend(DeviceType::cuda).compute_capability(kGpu).device >= 100;
  EXPECT_EQ(recipes::mxfp8_path(kGpu), blackwell ? recipes::GemmPath::native : recipes::GemmPath::fallback);
}

}  // namespace
}  // namespace quench::testing
