#include "core/ops/basic/gelu.h"

#include <gmock/gmock.h>

#include <numbers>

#include "tests/core/ops/op_testing.h"
#include "tests/seams/refusal.h"

namespace quench {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

// x P(x) and its derivative.
struct Expected {
  double value, slope;
};

Expected gelu_of(double x, GeluForm form) {
  if (form == GeluForm::exact) {
    const double p = 0.5 * std::erfc(-x / std::numbers::sqrt2);
    return {x * p, p + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi)};
  }
  const double inner = std::sqrt(2 / std::numbers::pi), u = inner * (x + 0.044715 * x * x * x), t = std::tanh(u);
  return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner * (1 + 3 * 0.044715 * x * x)};
}

TEST(Gelu, ForwardAndBackwardMatchTheFormulas) {
  std::uint32_t seed = 1;
  for (const GeluForm form : kGeluForms)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Shape& shape : {Shape{1}, Shape{3, 7}, Shape{2, 3, 16}, Shape{70, 1000}}) {
        SCOPED_TRACE(fmt::format("{}{} exact {}", to_string(dtype), shape.to_string(), form == GeluForm::exact));
        Generator random(++seed);
        const Tensor x = random.normal(shape, dtype, 2.0), dy = random.normal(shape, dtype);
        const Tensor y = Tensor::empty(shape, dtype), dx = Tensor::empty(shape, dtype);
        const Tensor old_x = x.clone(), old_dy = dy.clone();
        std::vector<double> value = values(x), gradient = values(dy);
        for (std::size_t i = 0; i < value.size(); ++i) {
          const Expected expected = gelu_of(value[i], form);
          value[i] = expected.value;
          gradient[i] *= expected.slope;
        }
        gelu({x, y, form});
        EXPECT_TRUE(close(y, value, rounding(dtype) * 1.01 + 2e-6, 2e-7));
        gelu_backward({.dy = dy, .x = x, .dx = dx, .form = form});
        EXPECT_TRUE(close(dx, gradient, rounding(dtype) * 1.01 + 2e-6, 1e-6));
        EXPECT_TRUE(same_bits(x, old_x) && same_bits(dy, old_dy));
        gelu_backward({.dy = dy, .x = x, .dx = dy, .form = form});
        EXPECT_TRUE(same_bits(dy, dx));
        gelu({x, x, form});
        EXPECT_TRUE(same_bits(x, y));
      }
}

TEST(Gelu, LargeValuesAreKeptOrBecomeZero) {
  for (const GeluForm form : kGeluForms) {
    const Tensor x = Tensor::from_values<float>({4}, std::vector<float>{200, -200, 0, -0.0f}),
                 y = Tensor::empty_like(x);
    gelu({x, y, form});
    EXPECT_EQ(values(y), (std::vector<double>{200, 0, 0, 0}));
    gelu_backward({.dy = Tensor::from_values<float>({4}, std::vector<float>(4, 1.0f)), .x = x, .dx = y, .form = form});
    EXPECT_EQ(values(y), (std::vector<double>{1, 0, 0.5, 0.5}));
  }
}

TEST(Gelu, TheExactFormKeepsTheRelativeAccuracyOfTheTail) {
  const Tensor x = Tensor::from_values<float>({3}, std::vector<float>{-5, -7, -9}), y = Tensor::empty_like(x);
  gelu({x, y, GeluForm::exact});
  std::vector<double> expected = values(x);
  for (double& value : expected) value = gelu_of(value, GeluForm::exact).value;
  EXPECT_TRUE(close(y, expected, 2e-5, 0));
}

TEST(Gelu, NamesOperandsThatDoNotFit) {
  const Tensor x = Tensor::zeros({3, 4}, DType::f32);
  EXPECT_THAT(refusal([&] {
                gelu({x, Tensor::zeros({3, 4}, DType::bf16)});
              }),
              AllOf(HasSubstr("gelu"), HasSubstr("y is bf16[3, 4]")));
  EXPECT_THAT(refusal([&] {
                gelu({Tensor::zeros({2}, DType::f16), x});
              }),
              AllOf(HasSubstr("gelu"), HasSubstr("f16[2]")));
  EXPECT_THAT(refusal([&] {
                gelu({x, Tensor::empty({3, 4}, DType::f32, Device{DeviceType::meta})});
              }),
              AllOf(HasSubstr("gelu"), HasSubstr("cpu"), HasSubstr("meta")));
  EXPECT_THAT(refusal([&] {
                gelu_backward({x, Tensor::zeros({4, 3}, DType::f32), x});
              }),
              AllOf(HasSubstr("gelu_backward"), HasSubstr("x is f32[4, 3]")));
  gelu({Tensor::zeros({0}, DType::f32), Tensor::zeros({0}, DType::f32)});
}

}  // namespace
}  // namespace quench
