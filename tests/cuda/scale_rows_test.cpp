#include "core/ops/elementwise.h"

#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

TEST(CudaScaleRows, MatchesTheCpu) {
  std::uint32_t seed = 900;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t rows : {1, 3, 1000})
      for (const std::int64_t width : {1, 7, 64, 4096}) {
        SCOPED_TRACE(fmt::format("{} {}x{}", to_string(dtype), rows, width));
        Generator random(++seed);
        const Tensor x = random.normal({rows, width}, dtype), factors = random.normal({rows}, DType::f32);
        factors.data<float>()[0] = 0;
        set_element(x, 0, std::nan(""));
        const Tensor gpu_x = on_gpu(x);
        scale_rows({gpu_x, on_gpu(factors)});
        scale_rows({x, factors});
        EXPECT_TRUE(matches(gpu_x, x, 0, 0));
      }
}

}  // namespace
}  // namespace quench::testing
