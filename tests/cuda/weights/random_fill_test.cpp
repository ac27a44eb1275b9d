#include "core/ops/weights/random_fill.h"

#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

TEST(CudaRandomFill, HasTheBitsOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const RandomDistribution distribution : {RandomDistribution::normal, RandomDistribution::uniform})
      for (const std::uint64_t first : {0ull, 3ull, 5000000001ull})
        for (const std::int64_t count : {1, 7, 4000001}) {
          SCOPED_TRACE(fmt::format("{} {} elements from {}", to_string(dtype), count, first));
          const RandomKey key{7, hash64("model.embed_tokens.weight"), 0};
          const Tensor cpu = Tensor::empty({count}, dtype), gpu = Tensor::empty({count}, dtype, kGpu);
          random_fill({cpu, key, first, distribution, 0.02f});
          random_fill({gpu, key, first, distribution, 0.02f});
          EXPECT_TRUE(matches(gpu, cpu, 0, 0));
        }
}

}  // namespace
}  // namespace quench::testing
