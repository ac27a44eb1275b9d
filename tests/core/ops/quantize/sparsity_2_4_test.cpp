#include "core/ops/quantize/sparsity_2_4.h"

#include <limits>

#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

TEST(Sparsity24, TheTwoLargestMagnitudesStay) {
  const Tensor x = Tensor::from_values<float>({2, 8}, std::array{1.f, -3.f, 2.f, 0.f, 5.f, 5.f, -5.f, 5.f,  //
                                                                 0.f, 0.f, 0.f, 1.f, -1.f, 2.f, 3.f, -4.f});
  const std::vector<double> expected{0, -3, 2, 0, 5, 5, 0, 0, 0, 0, 0, 1, 0, 0, 3, -4};
  EXPECT_EQ(values(pruned_2_4(x, Sparsity24::magnitude)), expected);
}

TEST(Sparsity24, WhatIsNotANumberStays) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor out =
      pruned_2_4(Tensor::from_values<float>({1, 4}, std::array{1e30f, nan, 2e30f, 1.f}), Sparsity24::magnitude);
  EXPECT_TRUE(std::isnan(out.data<float>()[1]));
  EXPECT_EQ(out.data<float>()[2], 2e30f);
  EXPECT_EQ(out.data<float>()[0], 0.0f);
}

// Greedy: the largest of the tile first, unless its row or its column has two already.
TEST(Sparsity24, ATileStaysTwoOfFourWhenTransposed) {
  const Tensor x = Tensor::from_values<float>({4, 4}, std::array{9.f, 8.f, 7.f, 1.f,  //
                                                                 6.f, 5.f, 4.f, 2.f,  //
                                                                 3.f, 2.f, 1.f, 3.f,  //
                                                                 0.5f, 0.f, 8.f, 9.f});
  const std::vector<double> expected{9, 8, 0, 0, 6, 5, 0, 0, 0, 0, 1, 3, 0, 0, 8, 9};
  EXPECT_EQ(values(pruned_2_4(x, Sparsity24::transposable)), expected);
}

TEST(Sparsity24, EveryTypeAndInPlace) {
  Generator random(1);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Sparsity24 rule : {Sparsity24::magnitude, Sparsity24::transposable}) {
      const Tensor x = random.normal({12, 40}, dtype), out = pruned_2_4(x, rule);
      const std::vector<double> before = values(x), after = values(out);
      for (std::int64_t row = 0; row < 12; ++row)
        for (std::int64_t four = 0; four < 10; ++four) {
          int kept = 0;
          double least = 1e9, most_dropped = 0;
          for (std::int64_t i = 0; i < 4; ++i) {
            const auto at = static_cast<std::size_t>(row * 40 + four * 4 + i);
            EXPECT_TRUE(after[at] == 0 || after[at] == before[at]);
            kept += after[at] != 0 ? 1 : 0;
            (after[at] != 0 ? least : most_dropped) =
                after[at] != 0 ? std::min(least, std::abs(before[at])) : std::max(most_dropped, std::abs(before[at]));
          }
          EXPECT_LE(kept, 2);
          if (rule == Sparsity24::magnitude) {
            EXPECT_EQ(kept, 2);
            EXPECT_GE(least, most_dropped);
          }
        }
      if (rule == Sparsity24::transposable)
        for (std::int64_t column = 0; column < 40; ++column)
          for (std::int64_t row = 0; row < 12; row += 4) {
            int kept = 0;
            for (std::int64_t i = 0; i < 4; ++i) kept += after[static_cast<std::size_t>((row + i) * 40 + column)] != 0;
            EXPECT_LE(kept, 2);
          }
      prune_2_4({x, x, rule});
      EXPECT_TRUE(same_bits(x, out));
    }
}

TEST(Sparsity24, RefusesWhatDoesNotFit) {
  EXPECT_THROW((void)pruned_2_4(Tensor::zeros({4, 6}, DType::f32), Sparsity24::magnitude), Error);
  EXPECT_THROW((void)pruned_2_4(Tensor::zeros({6, 8}, DType::f32), Sparsity24::transposable), Error);
  EXPECT_NO_THROW((void)pruned_2_4(Tensor::zeros({6, 8}, DType::f32), Sparsity24::magnitude));
  EXPECT_THROW((void)pruned_2_4(Tensor::zeros({4, 8}, DType::i32), Sparsity24::magnitude), Error);
}

}  // namespace
}  // namespace quench
