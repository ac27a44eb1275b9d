// Expert GEMMs against TorchAO's grouped GEMMs (tests/golden/README.md), tolerances of numerics section 12.1.

#include <gtest/gtest.h>

#include "core/ops/elementwise.h"
#include "core/ops/experts/grouped_gemm.h"
#include "recipes/recipe.h"
#include "tests/core/ops/golden_file.h"
#include "tests/core/ops/op_testing.h"

namespace quench::recipes {
namespace {

using autograd::Variable;
using testing::values;

struct Products {
  Tensor y, ga, gb;
};

struct Vectors {
  explicit Vectors(const std::string& name)
      : golden("grouped_gemm.safetensors"),
        ends(golden.tensor("offs")),
        a(golden.tensor(name + ".a")),
        b(golden.tensor(name + ".b")),
        gy(golden.tensor(name + ".gy")),
        expected{golden.tensor(name + ".y"), golden.tensor(name + ".ga"), golden.tensor(name + ".gb")} {}

  [[nodiscard]] Products run(const Recipe& recipe) const {
    const ExpertPlan plan = recipe.plan_experts({.name = "experts"}, {});
    const Variable in = Variable::leaf(a);
    nn::Parameter weight;
    weight.variable = Variable::leaf(b.view({b.size(0) * b.size(1), b.size(2)}));
    autograd::TokenPermutation rows;
    rows.ends = ends;
    autograd::Tape tape;
    Variable y;
    {
      const autograd::TapeScope scope(tape);
      y = plan.kernel->apply(in, weight, rows);
    }
    const Tensor value = y.value();
    y.gradient()->contribute(gy);
    tape.backward();
    return {value, in.grad(), weight.variable.grad()};
  }
  // The sums of the magnitudes of the terms of each product.
  [[nodiscard]] Products magnitudes() const {
    const auto magnitude = [](const Tensor& t) {
      Tensor wide = Tensor::empty(t.shape(), DType::f32);
      cast({t, wide});
      for (std::int64_t i = 0; i < wide.numel(); ++i) wide.data<float>()[i] = std::abs(wide.data<float>()[i]);
      return wide;
    };
    const Tensor x = magnitude(a), w = magnitude(b), g = magnitude(gy);
    Products p{Tensor::empty(gy.shape(), DType::f32), Tensor::empty(a.shape(), DType::f32),
               Tensor::empty(b.shape(), DType::f32)};
    grouped_gemm(GroupedGemmArgs{x, w, ends, p.y, true});
    grouped_gemm(GroupedGemmArgs{g, w, ends, p.ga});
    grouped_wgrad(GroupedWgradArgs{g, x, ends, p.gb});
    return p;
  }

  testing::GoldenFile golden;
  Tensor ends, a, b, gy;
  Products expected;
};

double sqnr(const Tensor& actual, const Tensor& expected) {
  const auto x = values(actual), y = values(expected);
  double signal = 0, noise = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    signal += y[i] * y[i];
    noise += (x[i] - y[i]) * (x[i] - y[i]);
  }
  return 10 * std::log10(signal / noise);
}

void expect_within_one_ulp(const Tensor& actual, const Tensor& expected) {
  const auto wanted = values(expected);
  double largest = 0;
  for (const double x : wanted) largest = std::max(largest, std::abs(x));
  EXPECT_TRUE(testing::close(actual, wanted, 0x1.0p-7, 1e-4 * largest));
  EXPECT_GT(sqnr(actual, expected), 45);
}

TEST(ExpertsGolden, Mxfp8) {
  const Vectors vectors("mxfp8");
  const Products ours = vectors.run(kMxfp8);
  expect_within_one_ulp(ours.y, vectors.expected.y);
  expect_within_one_ulp(ours.ga, vectors.expected.ga);
  expect_within_one_ulp(ours.gb, vectors.expected.gb);
}

// Tensor cores do not sum float8 products in f32: the bound is on the sum of their magnitudes.
TEST(ExpertsGolden, Float8Rowwise) {
  const Vectors vectors("fp8_rowwise");
  const Products ours = vectors.run(kFloat8Rowwise), magnitudes = vectors.magnitudes();
  const auto expect = [](const Tensor& actual, const Tensor& expected, const Tensor& magnitude) {
    EXPECT_GT(sqnr(actual, expected), 55);
    const auto x = values(actual), y = values(expected), m = values(magnitude);
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_LE(std::abs(x[i] - y[i]), 0x1.0p-7 * std::abs(y[i]) + 0x1.0p-12 * m[i]) << i;
  };
  expect(ours.y, vectors.expected.y, magnitudes.y);
  expect(ours.ga, vectors.expected.ga, magnitudes.ga);
  expect(ours.gb, vectors.expected.gb, magnitudes.gb);
}

}  // namespace
}  // namespace quench::recipes
