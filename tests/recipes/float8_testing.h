#pragma once
// One linear layer under a recipe, forward and backward, on any device; shared by the CPU's and the GPU's tests.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>

#include "autograd/functions.h"
#include "core/number/random.h"
#include "core/ops/elementwise.h"
#include "recipes/recipe.h"

namespace quench::testing {

inline constexpr std::string_view kFloat8Recipes[] = {"float8_tensorwise", "float8_rowwise",
                                                      "float8_rowwise_with_gw_hp"};

struct LinearCase {
  Tensor x, w, dy;  // [M,K], [N,K], [M,N] on the CPU
  Tensor bias = {};
};

struct LinearResult {
  Tensor y, dx, dw;  // on the CPU
};

inline Tensor random_matrix(std::int64_t rows, std::int64_t columns, std::uint64_t stream, float scale = 1.0f,
                            DType dtype = DType::bf16) {
  const Tensor values = Tensor::empty({rows, columns}, DType::f32);
  for (std::int64_t i = 0; i < values.numel(); ++i)
    values.data<float>()[i] = scale * random_normal({11, stream, 0}, static_cast<std::uint64_t>(i));
  if (dtype == DType::f32) return values;
  const Tensor result = Tensor::empty(values.shape(), dtype);
  cast({values, result});
  return result;
}

inline Tensor as_f32(const Tensor& t) {
  if (t.dtype() == DType::f32) return t;
  const Tensor result = Tensor::empty(t.shape(), DType::f32);
  cast({t, result});
  return result;
}

inline std::shared_ptr<const nn::LinearKernel> make_kernel(std::string_view recipe, const LinearCase& c, Device device,
                                                           const recipes::RecipeOptions& options = {}) {
  const nn::LinearInfo info{.name = "layer",
                            .in_features = c.x.size(1),
                            .out_features = c.w.size(0),
                            .has_bias = c.bias.defined(),
                            .device = device};
  const recipes::LinearPlan plan = recipes::find_recipe(recipe).plan(info, options);
  QUENCH_CHECK(plan.kernel != nullptr, "{}", plan.skipped_because);
  return plan.kernel;
}

inline LinearResult run_linear(const nn::LinearKernel& kernel, const LinearCase& c, Device device = {},
                               DType weight_gradient = DType::bf16) {
  using autograd::Variable;
  const Variable x = Variable::leaf(c.x.to(device));
  nn::Parameter weight;
  weight.variable = Variable::leaf(c.w.to(device), weight_gradient);
  const Variable bias = c.bias.defined() ? Variable::leaf(c.bias.to(device)) : Variable();
  autograd::Tape tape;
  Variable y;
  {
    const autograd::TapeScope scope(tape);
    y = kernel.apply(x, weight, bias);
  }
  const Tensor value = y.value();
  y.gradient()->contribute(c.dy.to(device));
  tape.backward();
  return {value.to(Device{}), x.grad().to(Device{}), weight.variable.grad().to(Device{})};
}

// Powers of two for `count` rows or columns; all alike where one scale covers them.
inline std::vector<int> random_exponents(std::int64_t count, std::uint64_t stream, bool alike) {
  std::vector<int> result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back(random_below({12, stream, 0}, static_cast<std::uint64_t>(alike ? 0 : i), 2) == 0 ? -20 : 20);
  return result;
}

// The matrix with row r times 2^rows[r] and column c times 2^columns[c]; empty: 1.
inline Tensor scaled(const Tensor& t, const std::vector<int>& rows, const std::vector<int>& columns) {
  const Tensor values = as_f32(t).clone();
  for (std::int64_t r = 0; r < t.size(0); ++r)
    for (std::int64_t c = 0; c < t.size(1); ++c) {
      float& value = values.data<float>()[r * t.size(1) + c];
      value = std::ldexp(value, (rows.empty() ? 0 : rows[static_cast<std::size_t>(r)]) +
                                    (columns.empty() ? 0 : columns[static_cast<std::size_t>(c)]));
    }
  const Tensor result = Tensor::empty(t.shape(), t.dtype());
  cast({values, result});
  return result;
}

inline void expect_same_values(const Tensor& a, const Tensor& b, std::string_view what) {
  const Tensor left = as_f32(a), right = as_f32(b);
  std::int64_t differ = 0, first = -1;
  for (std::int64_t i = 0; i < left.numel(); ++i) {
    if (left.data<float>()[i] == right.data<float>()[i]) continue;
    if (differ++ == 0) first = i;
  }
  EXPECT_EQ(differ, 0) << what << ": first at " << first << ": " << left.data<float>()[std::max<std::int64_t>(first, 0)]
                       << " against " << right.data<float>()[std::max<std::int64_t>(first, 0)];
}

// An accumulating call gives what was there plus what apply() gives, but for roundings to bf16, and the same gradient
// of x, where a library may sum in another order: rows are padded for the weight's gradient alone.
inline void expect_adds_onto(std::string_view recipe, std::int64_t m, std::int64_t k, std::int64_t n, Device device) {
  const LinearCase c{random_matrix(m, k, 91), random_matrix(n, k, 92, 0.1f), random_matrix(m, n, 93),
                     random_matrix(1, n, 94).view({n})};
  const auto kernel = make_kernel(recipe, c, device, {.pad = true, .fast_accumulation = {}});
  const LinearResult apart = run_linear(*kernel, c, device);
  const Tensor before = random_matrix(m, n, 95, 4.0f), y = before.to(device).clone();
  nn::Parameter weight;
  weight.variable = autograd::Variable(c.w.to(device));
  const autograd::Variable x = autograd::Variable::leaf(c.x.to(device));
  const autograd::Variable bias_on_device(c.bias.to(device));
  const nn::LinearCall onto{.x = x, .epilogue = nn::LinearEpilogue::accumulate, .out = y};
  ASSERT_TRUE(kernel->supports(onto, weight, bias_on_device));
  autograd::Tape tape;
  autograd::Variable sum;
  {
    const autograd::TapeScope scope(tape);
    sum = kernel->run(onto, weight, bias_on_device).y;
  }
  EXPECT_EQ(sum.value().raw_data(), y.raw_data());
  const Tensor got = as_f32(y.to(Device{})), there = as_f32(before), product = as_f32(apart.y), bias = as_f32(c.bias);
  for (std::int64_t i = 0; i < got.numel(); ++i) {
    const float a = there.data<float>()[i], b = product.data<float>()[i];
    // Up to five roundings to bf16 of sums of these.
    const float terms = std::abs(a) + std::abs(b) + std::abs(bias.data<float>()[i % n]);
    // int8: their worst case, half a bf16 ulp (2^-8) each.
    ASSERT_NEAR(got.data<float>()[i], a + b, terms * (recipe == "int8_rowwise" ? 5 * 0x1p-8f : 0x1p-7f)) << i;
  }
  sum.gradient()->contribute(c.dy.to(device));
  tape.backward();
  const Tensor dx = as_f32(x.grad().to(Device{})), expected = as_f32(apart.dx);
  double difference = 0, whole = 0;
  for (std::int64_t i = 0; i < dx.numel(); ++i) {
    difference += std::pow(double{dx.data<float>()[i]} - double{expected.data<float>()[i]}, 2);
    whole += std::pow(double{expected.data<float>()[i]}, 2);
  }
  EXPECT_LT(difference, 1e-5 * whole);
}

// Multiplies every index that a product keeps by 2^20 or 2^-20: each output must change by exactly the product of its
// two factors. Scales along a wrong axis, or one scale where there should be many, break this in most cells. An operand
// that has one scale for the whole tensor takes one factor for all.
inline void expect_exact_scaling(std::string_view recipe, Device device) {
  const bool tensorwise = recipe == "float8_tensorwise";
  const bool one_scale_weight = tensorwise || recipe == "float8_rowwise_with_gw_hp";
  const LinearCase plain{random_matrix(64, 96, 1), random_matrix(80, 96, 2), random_matrix(64, 80, 3)};
  const auto kernel = [&](const LinearCase& c) { return make_kernel(recipe, c, device); };
  const LinearResult base = run_linear(*kernel(plain), plain, device);
  {
    SCOPED_TRACE("forward");
    const auto rows = random_exponents(64, 4, tensorwise), outs = random_exponents(80, 5, tensorwise);
    const LinearCase c{scaled(plain.x, rows, {}), scaled(plain.w, outs, {}), plain.dy};
    expect_same_values(run_linear(*kernel(c), c, device).y, scaled(base.y, rows, outs), "y");
  }
  {
    SCOPED_TRACE("dgrad");
    const auto rows = random_exponents(64, 6, tensorwise), ins = random_exponents(96, 7, one_scale_weight);
    const LinearCase c{plain.x, scaled(plain.w, {}, ins), scaled(plain.dy, rows, {})};
    expect_same_values(run_linear(*kernel(c), c, device).dx, scaled(base.dx, rows, ins), "dx");
  }
  {
    SCOPED_TRACE("wgrad");
    const auto outs = random_exponents(80, 8, tensorwise), ins = random_exponents(96, 9, tensorwise);
    const LinearCase c{scaled(plain.x, {}, ins), plain.w, scaled(plain.dy, {}, outs)};
    expect_same_values(run_linear(*kernel(c), c, device).dw, scaled(base.dw, outs, ins), "dw");
  }
}

}  // namespace quench::testing
