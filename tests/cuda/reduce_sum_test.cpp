#include "core/ops/reduce_sum.h"

#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

TEST(CudaReduceSum, MatchesTheCpuForAnyLength) {
  Generator random(1);
  for (const std::int64_t n : {0, 1, 31, 1024, 1025, 70001}) {
    const Tensor x = random.normal({n}, DType::f32), expected = Tensor::empty({1}, DType::f32);
    const Tensor out = Tensor::empty({1}, DType::f32, kGpu);
    reduce_sum({.x = x, .out = expected, .scale = 0.25f});
    reduce_sum({.x = on_gpu(x), .out = out, .scale = 0.25f});
    EXPECT_NEAR(*on_cpu(out).data<float>(), *expected.data<float>(), 1e-6 + 1e-7 * static_cast<double>(n)) << n;
  }
}

TEST(CudaReduceSum, KeepsNan) {
  Generator random(2);
  const Tensor x = random.normal({5000}, DType::f32);
  x.data<float>()[4321] = std::nanf("");
  const Tensor out = Tensor::empty({1}, DType::f32, kGpu);
  reduce_sum({.x = on_gpu(x), .out = out});
  EXPECT_TRUE(std::isnan(*on_cpu(out).data<float>()));
}

}  // namespace
}  // namespace quench::testing
