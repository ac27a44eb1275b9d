#include "core/ops/gemm.h"

#include <thread>

#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

struct GemmCase {
  std::int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, bias = false;
  float alpha = 1.0f, beta = 0.0f;
  DType dtype = DType::f32, c_dtype = DType::f32;
  std::int64_t gap = 0;
  bool addend = false;  // beta multiplies another matrix than c
};

void check(const GemmCase& c, std::uint32_t seed) {
  SCOPED_TRACE(fmt::format("m {} n {} k {} ta {} tb {} bias {} alpha {} beta {} {} -> {} gap {}", c.m, c.n, c.k,
                           c.transpose_a, c.transpose_b, c.bias, c.alpha, c.beta, to_string(c.dtype),
                           to_string(c.c_dtype), c.gap));
  Generator random(seed);
  const Tensor a = random.normal_view(c.transpose_a ? Shape{c.k, c.m} : Shape{c.m, c.k}, c.dtype, c.gap);
  const Tensor b = random.normal_view(c.transpose_b ? Shape{c.n, c.k} : Shape{c.k, c.n}, c.dtype, c.gap);
  const Tensor out = random.normal_view({c.m, c.n}, c.c_dtype, c.gap);
  const Tensor bias = c.bias ? random.normal({c.n}, c.dtype) : Tensor();
  const Tensor addend = c.addend ? random.normal_view({c.m, c.n}, c.c_dtype, c.gap + 2) : Tensor();
  const auto va = values(a), vb = values(b), old = values(c.addend ? addend : out),
             vbias = c.bias ? values(bias) : std::vector<double>();
  if (c.beta == 0.0f || c.addend) fill(out, std::nan(""));  // must not be read
  if (c.beta == 0.0f && c.addend) fill(addend, std::nan(""));

  gemm({a, b, out, c.transpose_a, c.transpose_b, c.alpha, c.beta, bias, addend});

  std::vector<double> expected(old.size());
  double magnitude = 0;
  for (std::int64_t i = 0; i < c.m; ++i)
    for (std::int64_t j = 0; j < c.n; ++j) {
      double sum = 0;
      for (std::int64_t p = 0; p < c.k; ++p)
        sum += va[static_cast<std::size_t>(c.transpose_a ? p * c.m + i : i * c.k + p)] *
               vb[static_cast<std::size_t>(c.transpose_b ? j * c.k + p : p * c.n + j)];
      const auto at = static_cast<std::size_t>(i * c.n + j);
      expected[at] = c.alpha * sum + (c.beta != 0.0f ? c.beta * old[at] : 0.0) +
                     (c.bias ? vbias[static_cast<std::size_t>(j)] : 0.0);
      magnitude = std::max(magnitude, std::abs(expected[at]));
    }
  EXPECT_TRUE(close(out, expected, rounding(c.c_dtype) * 1.01,
                    1e-6 * std::sqrt(static_cast<double>(c.k) + 1) + 1e-6 * magnitude));
}

TEST(Gemm, EveryTransposeAndDtype) {
  std::uint32_t seed = 1;
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{1, 1, 1}, {5, 7, 3}, {17, 33, 65}, {64, 128, 96}, {3, 200, 130}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const auto& [dtype, c_dtype] :
             {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
          for (const std::int64_t gap : {0, 3})
            check({.m = m,
                   .n = n,
                   .k = k,
                   .transpose_a = ta,
                   .transpose_b = tb,
                   .dtype = dtype,
                   .c_dtype = c_dtype,
                   .gap = gap},
                  ++seed);
}

TEST(Gemm, AlphaBetaAndBias) {
  std::uint32_t seed = 100;
  for (const bool bias : {false, true})
    for (const float alpha : {1.0f, 0.5f, -2.0f})
      for (const float beta : {0.0f, 1.0f, 0.25f})
        for (const auto& [dtype, c_dtype] :
             {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
          check({.m = 9,
                 .n = 40,
                 .k = 21,
                 .transpose_b = true,
                 .bias = bias,
                 .alpha = alpha,
                 .beta = beta,
                 .dtype = dtype,
                 .c_dtype = c_dtype},
                ++seed);
}

// Integers whose sums f32 holds, in tiles whole and partial, and over several blocks of K: no order of sums differs.
TEST(Gemm, SumsWithoutRoundingsAreExact) {
  Generator random(8);
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{300, 270, 600}, {7, 530, 1030}, {241, 17, 255}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const DType dtype : {DType::f32, DType::bf16}) {
          SCOPED_TRACE(fmt::format("{}x{}x{} {}{} {}", m, n, k, ta, tb, to_string(dtype)));
          const Tensor a = Tensor::empty(ta ? Shape{k, m} : Shape{m, k}, dtype);
          const Tensor b = Tensor::empty(tb ? Shape{n, k} : Shape{k, n}, dtype), c = Tensor::empty({m, n}, DType::f32);
          for (const Tensor& t : {a, b})
            for (std::int64_t i = 0; i < t.numel(); ++i) set_element(t, i, static_cast<double>(random.between(-4, 4)));
          fill(c, 5);
          gemm({.a = a, .b = b, .c = c, .transpose_a = ta, .transpose_b = tb, .alpha = 2, .beta = 1});
          for (int sample = 0; sample < 200; ++sample) {
            const std::int64_t i = random.below(m), j = random.below(n);
            double sum = 5;
            for (std::int64_t p = 0; p < k; ++p)
              sum += 2 * get_element(a, ta ? p * m + i : i * k + p) * get_element(b, tb ? j * k + p : p * n + j);
            ASSERT_EQ(get_element(c, i * n + j), sum) << i << ", " << j;
          }
        }
}

TEST(Gemm, FewRowsAndRandomShapes) {
  Generator random(7);
  for (int i = 0; i < 150; ++i) {
    const bool bf16 = random.coin();
    check({.m = random.coin() ? random.between(1, 5) : random.between(1, 70),
           .n = random.between(1, 300),
           .k = random.between(1, random.below(8) == 0 ? 5000 : 300),
           .transpose_a = random.coin(),
           .transpose_b = random.coin(),
           .bias = random.coin(),
           .alpha = random.coin() ? 1.0f : 1.5f,
           .beta = random.coin() ? 0.0f : 1.0f,
           .dtype = bf16 ? DType::bf16 : DType::f32,
           .c_dtype = bf16 && random.coin() ? DType::bf16 : DType::f32,
           .gap = random.below(4)},
          static_cast<std::uint32_t>(1000 + i));
  }
}

TEST(Gemm, AnAddendBesideTheResult) {
  std::uint32_t seed = 200;
  for (const std::int64_t m : {1, 3, 40})
    for (const std::int64_t k : {0, 21, 2100})
      for (const bool bias : {false, true})
        for (const float beta : {0.0f, 1.0f, -4.0f})
          for (const auto& [dtype, c_dtype] :
               {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
            check({.m = m,
                   .n = 33,
                   .k = k,
                   .transpose_a = k == 2100,
                   .transpose_b = k == 21,
                   .bias = bias,
                   .alpha = 0.5f,
                   .beta = beta,
                   .dtype = dtype,
                   .c_dtype = c_dtype,
                   .gap = bias ? 3 : 0,
                   .addend = true},
                  ++seed);
}

TEST(Gemm, LongDepth) {
  std::uint32_t seed = 500;
  for (const DType c_dtype : {DType::f32, DType::bf16})
    for (const float beta : {0.0f, 0.5f})
      for (const std::int64_t gap : {0, 3})
        check({.m = 20,
               .n = 33,
               .k = 2100,
               .transpose_a = true,
               .transpose_b = gap == 0,
               .bias = true,
               .alpha = 0.5f,
               .beta = beta,
               .dtype = c_dtype,
               .c_dtype = c_dtype,
               .gap = gap},
              ++seed);
}

TEST(Gemm, DepthOfAVocabulary) {
  check({.m = 5, .n = 12, .k = 20000}, 600);
  check({.m = 5, .n = 12, .k = 20000, .bias = true, .beta = 1.0f, .dtype = DType::bf16, .c_dtype = DType::bf16}, 601);
  check({.m = 1, .n = 12, .k = 20000, .transpose_b = true}, 602);
}

TEST(Gemm, EmptyDimensions) {
  check({.m = 0, .n = 4, .k = 3}, 1);
  check({.m = 4, .n = 0, .k = 3}, 2);
  check({.m = 4, .n = 5, .k = 0}, 3);
  check({.m = 4, .n = 5, .k = 0, .bias = true, .beta = 2.0f}, 4);
  check({.m = 4, .n = 5, .k = 0, .bias = true, .beta = 1.0f, .dtype = DType::bf16, .c_dtype = DType::bf16}, 5);
}

TEST(Gemm, NonFiniteValuesStayInTheirRowsAndColumns) {
  Generator random(3);
  for (const std::int64_t m : {1, 8}) {
    const Tensor a = random.normal({m, 20}, DType::f32), b = random.normal({24, 20}, DType::f32);
    b.data<float>()[5 * 20 + 3] = NAN;
    b.data<float>()[7 * 20] = INFINITY;
    const Tensor c = Tensor::empty({m, 24}, DType::f32);
    gemm({.a = a, .b = b, .c = c, .transpose_b = true});
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < 24; ++j) {
        const float value = c.data<float>()[i * 24 + j];
        EXPECT_EQ(std::isnan(value), j == 5);
        EXPECT_EQ(std::isinf(value), j == 7);
      }
  }
}

TEST(Gemm, BitsDoNotDependOnTheThreadCount) {
  Generator random(11);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{768, 384, 128},
                                  {128, 384, 768},
                                  {1, 512, 1024},
                                  {48, 64, 2500},
                                  {200, 96, 4100},
                                  {64, 64, 4096}}) {
      const Tensor a = random.normal({m, k}, dtype), b = random.normal({n, k}, dtype),
                   at = random.normal({k, m}, dtype), bt = random.normal({k, n}, dtype);
      const Tensor c = Tensor::empty({m, n}, dtype);
      EXPECT_TRUE(independent_of_threads({c}, [&] { gemm({.a = a, .b = b, .c = c, .transpose_b = true}); }));
      EXPECT_TRUE(independent_of_threads({c}, [&] { gemm({.a = a, .b = bt, .c = c}); }));
      EXPECT_TRUE(independent_of_threads({c}, [&] { gemm({.a = at, .b = bt, .c = c, .transpose_a = true}); }));
    }
}

TEST(Gemm, RunsFromSeveralThreads) {
  Generator random(13);
  const Tensor a = random.normal({33, 64}, DType::f32), b = random.normal({64, 48}, DType::f32);
  std::vector<Tensor> results;
  for (int i = 0; i < 4; ++i) results.push_back(Tensor::empty({33, 48}, DType::f32));
  std::vector<std::thread> threads;
  for (const Tensor& c : results)
    threads.emplace_back([&a, &b, c] {
      omp_set_num_threads(1);
      for (int i = 0; i < 50; ++i) gemm({.a = a, .b = b, .c = c});
    });
  for (std::thread& thread : threads) thread.join();
  for (const Tensor& c : results) EXPECT_TRUE(same_bits(c, results[0]));
}

TEST(Gemm, RejectsWhatDoesNotFit) {
  const Tensor a = Tensor::zeros({2, 3}, DType::f32), b = Tensor::zeros({3, 4}, DType::f32),
               c = Tensor::zeros({2, 4}, DType::f32);
  EXPECT_THROW(gemm({.a = a, .b = a, .c = c}), Error);
  EXPECT_THROW(gemm({.a = a, .b = b, .c = Tensor::zeros({4, 2}, DType::f32)}), Error);
  EXPECT_THROW(gemm({.a = a, .b = b, .c = Tensor::zeros({2, 4}, DType::bf16)}), Error);
  EXPECT_THROW(gemm({.a = a, .b = Tensor::zeros({3, 4}, DType::bf16), .c = c}), Error);
  EXPECT_THROW(gemm({.a = a.transpose(0, 1), .b = b, .c = c, .transpose_a = true}), Error);
  EXPECT_THROW(gemm({.a = a, .b = b, .c = c, .bias = Tensor::zeros({3}, DType::f32)}), Error);
  EXPECT_THROW(gemm({.a = a, .b = b, .c = Tensor()}), Error);
  EXPECT_THROW(gemm({.a = a, .b = b, .c = c, .beta = 1.0f, .addend = Tensor::zeros({2, 3}, DType::f32)}), Error);
  EXPECT_THROW(gemm({.a = a, .b = b, .c = c, .beta = 1.0f, .addend = Tensor::zeros({2, 4}, DType::bf16)}), Error);
}

}  // namespace
}  // namespace quench
