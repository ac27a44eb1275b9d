// Backward ops that give the forward result once more: the same bits as the forward op's.

#include "core/ops/norm.h"
#include "core/ops/swiglu.h"
#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

TEST(RecomputedOutputs, SwigluBackwardGivesTheForwardResult) {
  Generator random(1);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor gate_up = random.normal({13, 74}, dtype), dout = random.normal({13, 37}, dtype);
    const Tensor expected = Tensor::empty({13, 37}, dtype), out = Tensor::empty({13, 37}, dtype);
    swiglu({gate_up, expected});
    swiglu_backward({.dout = dout, .gate_up = gate_up, .dgate_up = gate_up, .out = out});
    EXPECT_TRUE(same_bits(out, expected)) << to_string(dtype);
  }
}

TEST(RecomputedOutputs, RmsNormBackwardGivesTheForwardResult) {
  Generator random(2);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = random.normal({11, 53}, dtype), weight = random.normal({53}, dtype);
    const Tensor dy = random.normal({11, 53}, dtype), rstd = Tensor::empty({11}, DType::f32);
    const Tensor expected = Tensor::empty({11, 53}, dtype), y = Tensor::empty({11, 53}, dtype);
    rms_norm({.x = x, .weight = weight, .y = expected, .rstd = rstd});
    rms_norm_backward({.dy = dy, .x = x, .weight = weight, .rstd = rstd, .dx = dy, .y = y});
    EXPECT_TRUE(same_bits(y, expected)) << to_string(dtype);
  }
}

}  // namespace
}  // namespace quench
