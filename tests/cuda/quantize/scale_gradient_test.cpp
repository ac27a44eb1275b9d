#include "core/ops/quantize/scale_gradient.h"

#include "core/ops/elementwise.h"
#include "tests/cuda/cuda_testing.h"

namespace quench {
namespace {

using namespace testing;

// The lanes of a group sum in another order than the CPU.
TEST(CudaScaleGradient, MatchesCpu) {
  Generator random(1);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t group : {0, 3, 8, 12, 24, 32, 64, 96}) {
      const IntQuantOptions options{.bits = 4, .group_size = group};
      const Tensor w = random.normal({37, 192}, dtype),
                   dvalue = random.normal({37, 192}, group == 32 ? DType::bf16 : DType::f32);
      const Tensor scales = int_scales(w, options).scales;
      scale({.x = scales, .factor = 0.7f});  // some are clipped
      const Tensor expected = Tensor::empty(scales.shape(), DType::f32), found = expected.to(kGpu);
      scale_gradient({.w = w, .dvalue = dvalue, .scales = scales, .out = expected, .options = options, .factor = 0.1f});
      scale_gradient({.w = w.to(kGpu),
                      .dvalue = dvalue.to(kGpu),
                      .scales = scales.to(kGpu),
                      .out = found,
                      .options = options,
                      .factor = 0.1f});
      const Tensor back = on_cpu(found);
      for (std::int64_t i = 0; i < expected.numel(); ++i)
        EXPECT_NEAR(back.data<float>()[i], expected.data<float>()[i], 1e-4) << i;
    }
}

}  // namespace
}  // namespace quench
