#include "core/ops/quantize/two_of_four.h"

#include "tests/cuda/cuda_testing.h"

namespace quench {
namespace {

using namespace testing;

TEST(CudaTwoOfFour, IsThatOfTheCpu) {
  Generator random(1);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const TwoOfFour rule : {TwoOfFour::magnitude, TwoOfFour::transposable})
      for (const Shape& shape : {Shape{4, 4}, Shape{12, 1000}, Shape{260, 64}}) {
        const Tensor x = random.normal(shape, dtype);
        EXPECT_TRUE(same_bits(on_cpu(two_of_four(x.to(kGpu), rule)), two_of_four(x, rule)));
      }
}

}  // namespace
}  // namespace quench
