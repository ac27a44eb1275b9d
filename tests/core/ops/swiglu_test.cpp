#include "core/ops/swiglu.h"

#include <numbers>

#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

const Shape kSwigluShapes[] = {{1, 1}, {3, 5}, {4, 16}, {33, 100}, {200, 129}};  // [N,I]

TEST(Swiglu, ForwardAndBackwardMatchTheFormula) {
  std::uint32_t seed = 1;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : kSwigluShapes) {
      SCOPED_TRACE(fmt::format("{}{}", to_string(dtype), shape.to_string()));
      Generator random(++seed);
      const std::int64_t n = shape[0], width = shape[1];
      const Tensor gate_up = random.normal({n, 2 * width}, dtype, 3.0), dout = random.normal(shape, dtype);
      const Tensor out = Tensor::empty(shape, dtype), dgate_up = Tensor::empty({n, 2 * width}, dtype);
      const auto x = values(gate_up), g = values(dout);
      std::vector<double> y(g.size()), dx(x.size());
      for (std::int64_t r = 0; r < n; ++r)
        for (std::int64_t i = 0; i < width; ++i) {
          const auto at = static_cast<std::size_t>(r * width + i),
                     gate_at = static_cast<std::size_t>(2 * r * width + i);
          const double gate = x[gate_at], up = x[gate_at + static_cast<std::size_t>(width)], s = sigmoid(gate);
          y[at] = gate * s * up;
          dx[gate_at] = g[at] * up * s * (1 + gate * (1 - s));
          dx[gate_at + static_cast<std::size_t>(width)] = g[at] * gate * s;
        }
      swiglu({gate_up, out});
      EXPECT_TRUE(close(out, y, rounding(dtype) * 1.01 + 4e-7, 1e-7));
      swiglu_backward({dout, gate_up, dgate_up});
      EXPECT_TRUE(close(dgate_up, dx, rounding(dtype) * 1.01 + 4e-7, 1e-6));
      const Tensor in_place = gate_up.clone();
      swiglu_backward({dout, in_place, in_place});
      EXPECT_TRUE(same_bits(in_place, dgate_up));
    }
}

TEST(Swiglu, GeluTanhMatchesTheFormula) {
  std::uint32_t seed = 40;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : kSwigluShapes) {
      SCOPED_TRACE(fmt::format("{}{}", to_string(dtype), shape.to_string()));
      Generator random(++seed);
      const std::int64_t n = shape[0], width = shape[1];
      const Tensor gate_up = random.normal({n, 2 * width}, dtype, 3.0), dout = random.normal(shape, dtype);
      const Tensor out = Tensor::empty(shape, dtype), dgate_up = Tensor::empty({n, 2 * width}, dtype);
      const auto x = values(gate_up), g = values(dout);
      std::vector<double> y(g.size()), dx(x.size());
      for (std::int64_t r = 0; r < n; ++r)
        for (std::int64_t i = 0; i < width; ++i) {
          const auto at = static_cast<std::size_t>(r * width + i),
                     gate_at = static_cast<std::size_t>(2 * r * width + i);
          const double gate = x[gate_at], up = x[gate_at + static_cast<std::size_t>(width)];
          const double k = std::sqrt(2 / std::numbers::pi), u = k * (gate + 0.044715 * gate * gate * gate);
          const double t = std::tanh(u),
                       slope = 0.5 * (1 + t) + 0.5 * gate * (1 - t * t) * k * (1 + 0.134145 * gate * gate);
          y[at] = 0.5 * gate * (1 + t) * up;
          dx[gate_at] = g[at] * up * slope;
          dx[gate_at + static_cast<std::size_t>(width)] = g[at] * 0.5 * gate * (1 + t);
        }
      swiglu({.gate_up = gate_up, .out = out, .activation = GatedActivation::gelu_tanh});
      EXPECT_TRUE(close(out, y, rounding(dtype) * 1.01 + 2e-6, 1e-6));
      const Tensor again = Tensor::empty(shape, dtype);
      swiglu_backward({.dout = dout,
                       .gate_up = gate_up,
                       .dgate_up = dgate_up,
                       .out = again,
                       .activation = GatedActivation::gelu_tanh});
      EXPECT_TRUE(close(dgate_up, dx, rounding(dtype) * 1.01 + 2e-6, 4e-6));
      EXPECT_TRUE(same_bits(again, out));
    }
}

TEST(Swiglu, ExtremeGates) {
  const float gates[] = {-200.0f, -90.0f, -0.0f, 90.0f, 200.0f, INFINITY, -INFINITY, NAN};
  const Tensor gate_up = Tensor::zeros({8, 2}, DType::f32), out = Tensor::empty({8, 1}, DType::f32);
  for (int i = 0; i < 8; ++i) {
    gate_up.data<float>()[2 * i] = gates[i];
    gate_up.data<float>()[2 * i + 1] = 1.0f;
  }
  swiglu({gate_up, out});
  const float* y = out.data<float>();
  EXPECT_NEAR(y[0], 0.0f, 1e-30f);
  EXPECT_NEAR(y[1], 0.0f, 1e-30f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], 90.0f);
  EXPECT_EQ(y[4], 200.0f);
  EXPECT_EQ(y[5], INFINITY);
  EXPECT_TRUE(std::isnan(y[6]));  // -inf * 0
  EXPECT_TRUE(std::isnan(y[7]));
}

TEST(Swiglu, RejectsBadArgumentsAndTakesEmptyOnes) {
  EXPECT_THROW(swiglu({Tensor::zeros({2, 3}, DType::f32), Tensor::zeros({2, 1}, DType::f32)}), Error);
  EXPECT_THROW(swiglu({Tensor::zeros({2, 4}, DType::f32), Tensor::zeros({2, 4}, DType::f32)}), Error);
  EXPECT_THROW(swiglu({Tensor::zeros({2, 4}, DType::f32), Tensor::zeros({2, 2}, DType::bf16)}), Error);
  EXPECT_THROW(swiglu({Tensor::zeros({2, 4}, DType::f16), Tensor::zeros({2, 2}, DType::f16)}), Error);
  swiglu({Tensor::zeros({0, 4}, DType::f32), Tensor::zeros({0, 2}, DType::f32)});
}

}  // namespace
}  // namespace quench
