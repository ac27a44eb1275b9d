#include "tests/core/ops/quantize/tuned_rounding_cases.h"
#include "tests/cuda/cuda_testing.h"

namespace quench {
namespace {

using namespace testing;

TunedRounding on_gpu(const TunedRounding& of) {
  return {of.w.to(kGpu), of.offsets.to(kGpu), of.bounds.to(kGpu), of.factors.to(kGpu), of.grid};
}

// Bit for bit, after several steps.
TEST(CudaTunedRounding, ValuesAndStepsAreThoseOfTheCpu) {
  Generator random(1);
  for (const TunedRoundingCase& c : tuned_rounding_cases()) {
    SCOPED_TRACE(describe(c));
    const TunedRoundingInput in = tuned_rounding_input(random, c);
    const TunedRounding there = on_gpu(in.rounding);
    const Tensor gradient = in.gradient.to(kGpu);
    for (int step = 0; step < 5; ++step) {
      tuned_step({in.rounding, in.gradient, 0.03f});
      tuned_step({there, gradient, 0.03f});
    }
    EXPECT_TRUE(same_bits(on_cpu(there.offsets), in.rounding.offsets));
    EXPECT_TRUE(same_bits(on_cpu(there.factors), in.rounding.factors));
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor expected = Tensor::empty(in.rounding.w.shape(), dtype), found = expected.to(kGpu);
      tuned_values({in.rounding, expected, 0.7f});
      tuned_values({there, found, 0.7f});
      EXPECT_TRUE(same_bits(on_cpu(found), expected));
    }
  }
}

}  // namespace
}  // namespace quench
