// Sampling on the GPU: the CPU's tokens, bit for bit.

#include "core/ops/sampling/sample_tokens.h"

#include "tests/core/ops/sampling/sampling_cases.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

TEST(CudaSampleTokens, HasTheBitsOfTheCpu) {
  Generator random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const SamplingProblem p = random_sampling(random);
    SamplingProblem gpu = p;
    for (Tensor SamplingProblem::*member :
         {&SamplingProblem::logits, &SamplingProblem::rows, &SamplingProblem::tokens, &SamplingProblem::seen,
          &SamplingProblem::sampled, &SamplingProblem::allowed})
      gpu.*member = on_gpu(p.*member);
    sample_tokens(gpu.args());
    sample_tokens(p.args());
    EXPECT_TRUE(same_bits(on_cpu(gpu.sampled), p.sampled)) << trial << " " << p.logits.describe();
    EXPECT_TRUE(same_bits(on_cpu(gpu.tokens), p.tokens)) << trial;
    if (p.seen.defined()) {
      EXPECT_TRUE(same_bits(on_cpu(gpu.seen), p.seen)) << trial;
    }
  }
}

}  // namespace
}  // namespace quench::testing
