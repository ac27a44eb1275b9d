#include "core/ops/optimizer/symmetric_gemm.h"

#include "tests/core/ops/optimizer/symmetric_gemm_cases.h"

namespace quench::testing {
namespace {

TEST(SymmetricGemm, GivesTheProducts) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool transpose : {false, true})
      for (const auto& [n, k] : {std::pair{1, 5}, {33, 70}, {300, 40}, {530, 8}})
        for (const bool adds : {false, true}) {
          SCOPED_TRACE(fmt::format("{} n {} k {} transpose {} adds {}", to_string(dtype), n, k, transpose, adds));
          const SymmetricCase c(dtype, 2, n, k, transpose, adds);
          SymmetricGemmArgs args = c.args(Device{});
          symmetric_gemm(args);
          c.check(args.c, rounding(dtype) * 1.01);
        }
}

// Above the diagonal blocks the result is what is below them, bit for bit, though the sums are not.
TEST(SymmetricGemm, TakesHalfFromTheOtherHalf) {
  Generator random(5);
  const Tensor a = random.normal({1, 600, 20}, DType::f32), b = random.normal({1, 600, 20}, DType::f32),
               c = Tensor::empty({1, 600, 600}, DType::f32);
  symmetric_gemm({.a = a, .b = b, .c = c});
  const auto* values = c.data<float>();
  for (std::int64_t i = 256; i < 600; ++i)
    for (std::int64_t j = 0; j < i / 256 * 256; ++j) ASSERT_EQ(values[i * 600 + j], values[j * 600 + i]);
}

TEST(SymmetricGemm, BitsDoNotDependOnBatchAndThreads) {
  Generator random(7);
  const Tensor a = random.normal({3, 300, 64}, DType::bf16), c = Tensor::empty({3, 300, 300}, DType::bf16),
               alone = Tensor::empty({1, 300, 300}, DType::bf16);
  EXPECT_TRUE(independent_of_threads({c}, [&] { symmetric_gemm({.a = a, .b = a, .c = c}); }));
  symmetric_gemm({.a = a.narrow(0, 1, 1), .b = a.narrow(0, 1, 1), .c = alone});
  EXPECT_TRUE(same_bits(alone, c.narrow(0, 1, 1)));
}

TEST(SymmetricGemm, RejectsWhatDoesNotFit) {
  const Tensor a = Tensor::zeros({2, 4, 6}, DType::f32), c = Tensor::zeros({2, 4, 4}, DType::f32);
  EXPECT_NO_THROW(symmetric_gemm({.a = a, .b = a, .c = c}));
  EXPECT_THROW(symmetric_gemm({.a = a, .b = a, .c = c, .transpose = true}), Error);
  EXPECT_THROW(symmetric_gemm({.a = a, .b = a, .c = c, .beta = 1.0f}), Error);
  EXPECT_THROW(symmetric_gemm({.a = a, .b = Tensor::zeros({2, 4, 5}, DType::f32), .c = c}), Error);
  EXPECT_THROW(symmetric_gemm({.a = a, .b = a, .c = Tensor::zeros({2, 4, 4}, DType::bf16)}), Error);
  EXPECT_THROW(symmetric_gemm({.a = a, .b = a, .c = c, .beta = 1.0f, .addend = c.narrow(0, 0, 1)}), Error);
  EXPECT_THROW(symmetric_gemm({.a = a, .b = a, .c = c, .factors = Tensor::zeros({1}, DType::f32)}), Error);
  EXPECT_THROW(symmetric_gemm({.a = a.select(0, 0), .b = a.select(0, 0), .c = c.select(0, 0)}), Error);
}

}  // namespace
}  // namespace quench::testing
