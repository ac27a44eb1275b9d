#include "core/ops/soft_cap.h"

#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

TEST(SoftCap, ForwardAndBackwardMatchTheFormula) {
  std::uint32_t seed = 1;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{1, 1}, Shape{3, 7}, Shape{40, 129}})
      for (const float factor : {1.0f, 0.25f}) {
        Generator random(++seed);
        constexpr double kCap = 3.0;
        const Tensor x = random.normal(shape, dtype, 8.0), dx = random.normal(shape, dtype);
        std::vector<double> y = values(x), gradient = values(dx);
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = kCap * std::tanh(static_cast<double>(factor) * y[i] / kCap);
        soft_cap({.x = x, .factor = factor, .cap = 3.0f});
        EXPECT_TRUE(close(x, y, rounding(dtype) * 1.01 + 5e-7, 0));
        const std::vector<double> capped = values(x);
        for (std::size_t i = 0; i < y.size(); ++i)
          gradient[i] *= static_cast<double>(factor) * (1 - capped[i] * capped[i] / (kCap * kCap));
        soft_cap_backward({.dx = dx, .y = x, .factor = factor, .cap = 3.0f});
        EXPECT_TRUE(close(dx, gradient, rounding(dtype) * 1.01 + 1e-6, 1e-6));
      }
}

TEST(SoftCap, RejectsBadArgumentsAndTakesEmptyOnes) {
  EXPECT_THROW(soft_cap({.x = Tensor::zeros({2, 3}, DType::f32), .cap = 0.0f}), Error);
  EXPECT_THROW(soft_cap_backward({.dx = Tensor::zeros({2, 3}, DType::f32), .y = Tensor::zeros({2, 3}, DType::bf16)}),
               Error);
  soft_cap({.x = Tensor::zeros({0, 3}, DType::f32)});
}

}  // namespace
}  // namespace quench
