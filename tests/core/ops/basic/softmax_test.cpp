#include "core/ops/basic/softmax.h"

#include <gmock/gmock.h>

#include "tests/core/ops/op_testing.h"
#include "tests/seams/refusal.h"

namespace quench {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<double> softmax_of(const std::vector<double>& x, std::size_t width) {
  std::vector<double> y(x);
  for (std::size_t row = 0; row < x.size(); row += width) {
    const auto begin = y.begin() + static_cast<std::ptrdiff_t>(row), end = begin + static_cast<std::ptrdiff_t>(width);
    const double most = *std::max_element(begin, end);
    double sum = 0;
    for (auto i = begin; i != end; ++i) sum += * i = std::exp(*i - most);
    for (auto i = begin; i != end; ++i) *i /= sum;
  }
  return y;
}

TEST(Softmax, ForwardAndBackwardMatchTheFormula) {
  std::uint32_t seed = 1;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{1, 1}, Shape{4, 2}, Shape{3, 7}, Shape{40, 16}, Shape{300, 129}, Shape{2, 5000}}) {
      SCOPED_TRACE(fmt::format("{}{}", to_string(dtype), shape.to_string()));
      Generator random(++seed);
      const auto width = static_cast<std::size_t>(shape[1]);
      const Tensor x = random.normal(shape, dtype, 4.0), dy = random.normal(shape, dtype);
      const Tensor y = Tensor::empty(shape, dtype), dx = Tensor::empty(shape, dtype);
      const Tensor old_x = x.clone(), old_dy = dy.clone();
      softmax({x, y});
      EXPECT_TRUE(close(y, softmax_of(values(x), width), rounding(dtype) * 1.01 + 2e-6, 1e-30));
      softmax_backward({dy, y, dx});
      const auto vy = values(y), vdy = values(dy);
      std::vector<double> expected(vy.size());
      for (std::size_t row = 0; row < vy.size(); row += width) {
        double dot = 0;
        for (std::size_t i = row; i < row + width; ++i) dot += vy[i] * vdy[i];
        for (std::size_t i = row; i < row + width; ++i) expected[i] = vy[i] * (vdy[i] - dot);
      }
      EXPECT_TRUE(close(dx, expected, rounding(dtype) * 1.01 + 1e-5, 1e-6));
      EXPECT_TRUE(same_bits(x, old_x) && same_bits(dy, old_dy));
      softmax_backward({dy, y, dy});
      EXPECT_TRUE(same_bits(dy, dx));
      softmax({x, x});
      EXPECT_TRUE(same_bits(x, y));
    }
}

TEST(Softmax, LargeValuesDoNotOverflowAndMinusInfinityGetsZero) {
  const Tensor x = Tensor::from_values<float>(
      {3, 3}, std::vector<float>{1e30f, 1e30f, -1e30f, -INFINITY, 0, -INFINITY, -INFINITY, -INFINITY, -INFINITY});
  softmax({x, x});
  EXPECT_EQ(values(x.narrow(0, 0, 2)), (std::vector<double>{0.5, 0.5, 0, 0, 1, 0}));
  for (const double value : values(x.narrow(0, 2, 1))) EXPECT_TRUE(std::isnan(value));
}

TEST(Softmax, OneNaNMakesItsRowNaNAlone) {
  for (const std::int64_t at : {0, 3, 20}) {
    const Tensor x = Tensor::zeros({2, 21}, DType::f32);
    x.data<float>()[at] = NAN;
    softmax({x, x});
    for (std::int64_t i = 0; i < 21; ++i) {
      EXPECT_TRUE(std::isnan(x.data<float>()[i]));
      EXPECT_FLOAT_EQ(x.data<float>()[21 + i], 1.0f / 21);
    }
  }
}

TEST(Softmax, DoesNotDependOnThreads) {
  Generator random(3);
  const Tensor x = random.normal({500, 77}, DType::f32), y = Tensor::empty({500, 77}, DType::f32);
  const Tensor dx = Tensor::empty({500, 77}, DType::f32);
  EXPECT_TRUE(independent_of_threads({y, dx}, [&] {
    softmax({x, y});
    softmax_backward({x, y, dx});
  }));
}

TEST(Softmax, NamesOperandsThatDoNotFit) {
  const Tensor x = Tensor::zeros({3, 4}, DType::f32), half = Tensor::zeros({3, 4}, DType::bf16);
  EXPECT_THAT(refusal([&] {
                softmax({x, half});
              }),
              AllOf(HasSubstr("softmax"), HasSubstr("y is bf16[3, 4]"), HasSubstr("f32[3, 4]")));
  EXPECT_THAT(refusal([&] { softmax({x, Tensor::zeros({4, 3}, DType::f32)}); }), HasSubstr("f32[4, 3]"));
  EXPECT_THAT(refusal([&] { softmax({x.view({12}), x}); }), AllOf(HasSubstr("softmax"), HasSubstr("f32[12]")));
  EXPECT_THAT(refusal([&] {
                softmax({x, Tensor::empty({3, 4}, DType::f32, Device{DeviceType::meta})});
              }),
              AllOf(HasSubstr("softmax"), HasSubstr("cpu"), HasSubstr("meta")));
  EXPECT_THAT(refusal([&] {
                softmax_backward({x, half, x});
              }),
              AllOf(HasSubstr("softmax_backward"), HasSubstr("y is bf16[3, 4]")));
  EXPECT_THAT(refusal([&] { softmax_backward({x, x, Tensor()}); }), HasSubstr("dx is undefined"));
  softmax({Tensor::zeros({0, 4}, DType::f32), Tensor::zeros({0, 4}, DType::f32)});
}

}  // namespace
}  // namespace quench
