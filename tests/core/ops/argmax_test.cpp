#include "core/ops/argmax.h"

#include "tests/core/ops/argmax_cases.h"

namespace quench::testing {
namespace {

TEST(Argmax, FindsTheFirstOfTheLargestAndTheFirstThatIsNotFinite) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const ArgmaxCase& c : argmax_cases()) {
      const Tensor index = Tensor::empty({1}, DType::i32), nonfinite = Tensor::empty({1}, DType::i32);
      argmax({.x = argmax_row(c, dtype), .index = index, .first_nonfinite = nonfinite});
      EXPECT_EQ(*index.data<std::int32_t>(), c.index) << c.name;
      EXPECT_EQ(*nonfinite.data<std::int32_t>(), c.first_nonfinite) << c.name;
    }
}

TEST(Argmax, TakesEachRowForItself) {
  const std::vector<float> values{1, 3, 2, -1, -2, -3};
  const Tensor x = Tensor::from_values<float>({2, 3}, values), index = Tensor::empty({2}, DType::i32);
  argmax({.x = x, .index = index});
  EXPECT_EQ(index.data<std::int32_t>()[0], 1);
  EXPECT_EQ(index.data<std::int32_t>()[1], 0);
}

TEST(Argmax, RefusesWhatDoesNotFit) {
  const Tensor x = Tensor::zeros({2, 3}, DType::f32), index = Tensor::zeros({2}, DType::i32);
  EXPECT_THROW(argmax({.x = Tensor::zeros({2, 0}, DType::f32), .index = index}), Error);
  EXPECT_THROW(argmax({.x = x, .index = Tensor::zeros({3}, DType::i32)}), Error);
  EXPECT_THROW(argmax({.x = x, .index = Tensor::zeros({2}, DType::f32)}), Error);
  EXPECT_THROW(argmax({.x = x.narrow(1, 0, 2), .index = index}), Error);
  EXPECT_THROW(argmax({.x = x, .index = index, .first_nonfinite = Tensor::zeros({1}, DType::i32)}), Error);
}

}  // namespace
}  // namespace quench::testing
