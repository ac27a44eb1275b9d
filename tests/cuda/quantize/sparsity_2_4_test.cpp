#include "core/ops/quantize/sparsity_2_4.h"

#include "tests/cuda/cuda_testing.h"

namespace quench {
namespace {

using namespace testing;

TEST(CudaSparsity24, MatchesCpu) {
  Generator random(1);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Sparsity24 rule : {Sparsity24::magnitude, Sparsity24::transposable})
      for (const Shape& shape : {Shape{4, 4}, Shape{12, 1000}, Shape{260, 64}, Shape{8, 2052}, Shape{4, 513 * 4}})
        for (const std::int64_t shift : {0, 4}) {
          const Tensor x = random.normal({shape.numel() + shift}, dtype).narrow(0, shift, shape.numel()).view(shape);
          EXPECT_TRUE(same_bits(on_cpu(pruned_2_4(on_gpu(x), rule)), pruned_2_4(x, rule)))
              << shape.to_string() << " shift " << shift;
        }
}

}  // namespace
}  // namespace quench
