#include "core/ops/adapters/magnitude.h"

#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

// A matrix whose rows have gaps.
Tensor with_gaps(Generator& random, std::int64_t rows, std::int64_t columns, DType dtype) {
  return random.normal({rows, columns + 3}, dtype).narrow(1, 2, columns);
}

Tensor norms_of(std::int64_t count) {
  const Tensor norms = Tensor::empty({count}, DType::f32);
  for (std::int64_t i = 0; i < count; ++i) norms.data<float>()[i] = 0.5f + 0.1f * static_cast<float>(i % 7);
  return norms;
}

void expect_near(const Tensor& gpu, const Tensor& cpu, double relative) {
  const std::vector<double> a = values(on_cpu(gpu)), b = values(cpu);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], relative * (1 + std::abs(b[i]))) << i;
}

TEST(CudaMagnitude, NormsMatchCpu) {
  Generator random(1);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t width : {1, 77, 4096}) {
      const Tensor x = random.normal({37, width}, dtype), expected = Tensor::empty({37}, DType::f32);
      const Tensor out = Tensor::empty({37}, DType::f32, kGpu);
      row_norms({.x = x, .out = expected});
      row_norms({.x = on_gpu(x), .out = out});
      expect_near(out, expected, 1e-5);
    }
}

TEST(CudaMagnitude, ScaledLinesMatchCpu) {
  Generator random(2);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const DType of_magnitude : {DType::f32, DType::bf16})
      for (const bool by_row : {false, true})
        for (const bool with_bias : {false, true}) {
          const std::int64_t rows = 33, columns = 517, lines = by_row ? rows : columns;
          const Tensor x = with_gaps(random, rows, columns, dtype), magnitude = random.normal({lines}, of_magnitude),
                       norms = norms_of(lines), bias = with_bias ? random.normal({columns}, dtype) : Tensor();
          const Tensor expected = Tensor::empty({rows, columns}, dtype);
          const Tensor out = Tensor::empty({rows, columns}, dtype, kGpu);
          scale_by_magnitude(
              {.x = x, .magnitude = magnitude, .norms = norms, .bias = bias, .out = expected, .by_row = by_row});
          scale_by_magnitude({.x = on_gpu(x),
                              .magnitude = on_gpu(magnitude),
                              .norms = on_gpu(norms),
                              .bias = on_gpu(bias),
                              .out = out,
                              .by_row = by_row});
          expect_near(out, expected, dtype == DType::f32 ? 1e-6 : 8e-3);
        }
}

TEST(CudaMagnitude, GradientMatchesCpu) {
  Generator random(3);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t rows : {1, 64, 1000}) {
      const std::int64_t columns = 301;
      const Tensor dy = with_gaps(random, rows, columns, dtype), x = with_gaps(random, rows, columns, dtype),
                   norms = norms_of(columns), expected = random.normal({columns}, DType::f32);
      const Tensor out = on_gpu(expected);
      for (const bool accumulate : {true, false}) {
        magnitude_gradient({.dy = dy, .x = x, .norms = norms, .out = expected, .accumulate = accumulate});
        magnitude_gradient(
            {.dy = on_gpu(dy), .x = on_gpu(x), .norms = on_gpu(norms), .out = out, .accumulate = accumulate});
        expect_near(out, expected, 1e-4);
      }
    }
}

}  // namespace
}  // namespace quench::testing
