#include "core/ops/experts/grouped_gemm.h"

#include <limits>

#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

// Uneven and empty groups; rows after the last one.
const std::vector<std::vector<std::int32_t>> kEnds = {
    {32, 32, 96, 160}, {0, 0, 0, 160}, {1, 38, 39, 150}, {0, 0, 0, 0}, {160, 160, 160, 160}};
constexpr std::int64_t kRows = 160, kN = 24, kK = 40, kGroups = 4;

template <class Body>
void for_rows(const Tensor& ends, const Body& body) {
  std::int64_t begin = 0;
  for (std::int64_t e = 0; e < ends.size(0); ++e) {
    for (std::int64_t r = begin; r < ends.data<std::int32_t>()[e]; ++r) body(e, r);
    begin = ends.data<std::int32_t>()[e];
  }
}

TEST(GroupedGemm, EachRowMeetsItsGroupsMatrix) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool transpose : {false, true})
      for (const auto& list : kEnds) {
        const Tensor ends = ends_of(list);
        Generator random(4);
        const Tensor a = random.normal({kRows, kK}, dtype);
        const Tensor b = random.normal(transpose ? Shape{kGroups, kN, kK} : Shape{kGroups, kK, kN}, dtype);
        const Tensor c = Tensor::empty({kRows, kN}, dtype);
        fill(c, std::numeric_limits<double>::quiet_NaN());
        grouped_gemm({a, b, ends, c, transpose});
        const auto x = values(a), w = values(b);
        std::vector<double> expected(static_cast<std::size_t>(kRows * kN));
        for_rows(ends, [&](std::int64_t e, std::int64_t r) {
          for (std::int64_t n = 0; n < kN; ++n)
            for (std::int64_t k = 0; k < kK; ++k)
              expected[static_cast<std::size_t>(r * kN + n)] +=
                  x[static_cast<std::size_t>(r * kK + k)] *
                  w[static_cast<std::size_t>(transpose ? (e * kN + n) * kK + k : (e * kK + k) * kN + n)];
        });
        EXPECT_TRUE(close(c, expected, rounding(dtype) * 1.01 + 1e-6, 2e-5));
      }
}

TEST(GroupedGemm, GradientsOfTheMatricesSumOverTheirGroupsRows) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const DType out : {DType::f32, dtype})
      for (const float beta : {0.0f, 1.0f})
        for (const auto& list : kEnds) {
          const Tensor ends = ends_of(list);
          Generator random(8);
          const Tensor a = random.normal({kRows, kN}, dtype), b = random.normal({kRows, kK}, dtype);
          const Tensor c = random.normal({kGroups, kN, kK}, out);
          std::vector<double> expected(static_cast<std::size_t>(c.numel()));
          if (beta != 0)
            expected = values(c);
          else
            fill(c, std::numeric_limits<double>::quiet_NaN());
          grouped_wgrad({a, b, ends, c, beta});
          const auto x = values(a), y = values(b);
          for_rows(ends, [&](std::int64_t e, std::int64_t r) {
            for (std::int64_t n = 0; n < kN; ++n)
              for (std::int64_t k = 0; k < kK; ++k)
                expected[static_cast<std::size_t>((e * kN + n) * kK + k)] +=
                    x[static_cast<std::size_t>(r * kN + n)] * y[static_cast<std::size_t>(r * kK + k)];
          });
          EXPECT_TRUE(close(c, expected, rounding(out) * 1.01 + 1e-6, 5e-5));
        }
}

TEST(GroupedGemm, RefusesWhatDoesNotFit) {
  const Tensor a = Tensor::zeros({8, 4}, DType::f32), b = Tensor::zeros({2, 4, 6}, DType::f32);
  const Tensor c = Tensor::zeros({8, 6}, DType::f32);
  grouped_gemm({a, b, ends_of({3, 8}), c});
  EXPECT_THROW(grouped_gemm({a, b, ends_of({3, 8}), c, true}), Error);
  EXPECT_THROW(grouped_gemm({a, b, ends_of({3, 5, 8}), c}), Error) << "more groups than matrices";
  EXPECT_THROW(grouped_gemm({a, b, ends_of({3, 9}), c}), Error) << "past the last row";
  EXPECT_THROW(grouped_gemm({a, b, ends_of({3, 2}), c}), Error) << "falling";
  EXPECT_THROW(grouped_wgrad({a, c, ends_of({3, 8}), Tensor::zeros({2, 6, 4}, DType::f32)}), Error);
}

}  // namespace
}  // namespace quench
