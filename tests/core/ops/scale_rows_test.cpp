#include "core/ops/elementwise.h"

#include <cmath>

#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

TEST(ScaleRows, EachRowByItsFactorWithOneRounding) {
  std::uint32_t seed = 1;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t width : {1, 7, 16, 33}) {
      SCOPED_TRACE(fmt::format("{} width {}", to_string(dtype), width));
      Generator random(++seed);
      const std::int64_t n = 5;
      const Tensor x = random.normal({n, width}, dtype), factors = random.normal({n}, DType::f32);
      factors.data<float>()[2] = 0;
      const auto old = values(x), by = values(factors);
      scale_rows({x, factors});
      const auto scaled = values(x);
      for (std::size_t i = 0; i < scaled.size(); ++i) {
        const float product = static_cast<float>(old[i]) * static_cast<float>(by[i / static_cast<std::size_t>(width)]);
        const double expected =
            static_cast<double>(dtype == DType::f32 ? product : static_cast<float>(bfloat16(product)));
        EXPECT_EQ(scaled[i], expected) << i;
      }
    }
}

TEST(ScaleRows, FactorZeroClearsNonFiniteRows) {
  const Tensor x = Tensor::from_values<float>({2, 2}, std::vector<float>{NAN, INFINITY, NAN, 1});
  scale_rows({x, Tensor::from_values<float>({2}, std::vector<float>{0, 2})});
  EXPECT_EQ(x.data<float>()[0], 0);
  EXPECT_EQ(x.data<float>()[1], 0);
  EXPECT_TRUE(std::isnan(x.data<float>()[2]));
  EXPECT_EQ(x.data<float>()[3], 2);
}

TEST(ScaleRows, NamesOperandsThatDoNotFit) {
  const Tensor x = Tensor::empty({3, 4}, DType::f32);
  EXPECT_THROW(scale_rows({x, Tensor::empty({4}, DType::f32)}), Error);
  EXPECT_THROW(scale_rows({x, Tensor::empty({3}, DType::bf16)}), Error);
}

}  // namespace
}  // namespace quench
