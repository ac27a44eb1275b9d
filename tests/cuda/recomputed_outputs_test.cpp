// Backward kernels that give the forward result once more: the same bits as the forward kernel's.

#include "core/ops/norm.h"
#include "core/ops/swiglu.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

TEST(CudaRecomputedOutputs, SwigluBackwardGivesTheForwardResult) {
  Generator random(1);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t width : {37, 512}) {
      const Tensor gate_up = on_gpu(random.normal({13, 2 * width}, dtype));
      const Tensor dout = on_gpu(random.normal({13, width}, dtype));
      const Tensor expected = Tensor::empty({13, width}, dtype, kGpu), out = Tensor::empty({13, width}, dtype, kGpu);
      swiglu({gate_up, expected});
      swiglu_backward({.dout = dout, .gate_up = gate_up, .dgate_up = gate_up, .out = out});
      EXPECT_TRUE(same_bits(on_cpu(out), on_cpu(expected))) << to_string(dtype) << ' ' << width;
    }
}

TEST(CudaRecomputedOutputs, RmsNormBackwardGivesTheForwardResult) {
  Generator random(2);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t width : {53, 64, 768, 4096}) {
      const Tensor x = on_gpu(random.normal({11, width}, dtype)), weight = on_gpu(random.normal({width}, dtype));
      const Tensor dy = on_gpu(random.normal({11, width}, dtype)), rstd = Tensor::empty({11}, DType::f32, kGpu);
      const Tensor expected = Tensor::empty({11, width}, dtype, kGpu), y = Tensor::empty({11, width}, dtype, kGpu);
      rms_norm({.x = x, .weight = weight, .y = expected, .rstd = rstd});
      rms_norm_backward({.dy = dy, .x = x, .weight = weight, .rstd = rstd, .dx = dy, .y = y});
      EXPECT_TRUE(same_bits(on_cpu(y), on_cpu(expected))) << to_string(dtype) << ' ' << width;
    }
}

}  // namespace
}  // namespace quench::testing
