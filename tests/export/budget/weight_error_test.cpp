// Costs of rounding a weight: against the output errors that they stand for.

#include "export/budget/weight_error.h"

#include "export/methods/input_statistics.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

using testing::normal_weight;
using testing::unpacked;

constexpr std::int64_t kRows = 48, kColumns = 64;

Tensor difference(const Tensor& weight, const OperandScheme& scheme) {
  Tensor errors = unpacked(pack(rtn(weight, scheme, "w"), "w"));
  for (std::int64_t i = 0; i < errors.numel(); ++i) errors.data<float>()[i] -= weight.data<float>()[i];
  return errors;
}

ErrorWeights ones(std::int64_t rows = kRows) {
  return {std::vector<double>(static_cast<std::size_t>(rows), 1.0), std::vector<double>(kColumns, 1.0)};
}

TEST(RoundingCost, WithTheGramMatrixIsTheErrorOfTheOutputs) {
  const Tensor weight = normal_weight({kRows, kColumns}, DType::f32);
  const OperandScheme& scheme = find_scheme("int3_weight_only_g32")->weights;
  InputStatistics inputs(kColumns, true);
  Tensor x = normal_weight({96, kColumns}, DType::f32, 2);
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] += 0.1f;  // a mean: correlated inputs
  inputs.add(x, "w");
  const Tensor gram = inputs.gram();
  double trace = 0;
  for (std::int64_t c = 0; c < kColumns; ++c) trace += double{gram.data<float>()[c * kColumns + c]};
  const double expected = output_error(difference(weight, scheme), gram) / trace * kColumns;
  const std::vector<ErrorWeights> weights{ones()};
  const double cost =
      rounding_cost({.weight = weight, .scheme = scheme, .name = "w", .weights = weights, .gram = gram});
  EXPECT_NEAR(cost, expected, 1e-4 * expected);
  // Without it: the squared error.
  const Tensor errors = difference(weight, scheme);
  double squares = 0;
  for (std::int64_t i = 0; i < errors.numel(); ++i)
    squares += double{errors.data<float>()[i]} * double{errors.data<float>()[i]};
  EXPECT_NEAR(rounding_cost({.weight = weight, .scheme = scheme, .name = "w", .weights = weights}), squares,
              1e-6 * squares);
}

TEST(RoundingCost, OfALargeWeightIsEstimatedFromRows) {
  const Tensor weight = normal_weight({1000, kColumns}, DType::bf16);
  const OperandScheme& scheme = find_scheme("q4_0")->weights;
  const std::vector<ErrorWeights> all{ones(1000)}, relative{relative_weights(weight, {})};
  const double cost = rounding_cost({.weight = weight, .scheme = scheme, .name = "w", .weights = all});
  double squares = 0;
  const Tensor values = unpacked(pack(rtn(weight, scheme, "w"), "w"));
  double power = 0;
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const auto w = static_cast<double>(float(weight.data<bfloat16>()[i]));
    const double error = double{values.data<float>()[i]} - w;
    squares += error * error;
    power += w * w;
  }
  EXPECT_NEAR(cost, squares, 0.05 * squares);
  EXPECT_NEAR(rounding_cost({.weight = weight, .scheme = scheme, .name = "w", .weights = relative}), cost / power,
              1e-6 * cost / power);
  // Rows that do not count.
  std::vector<ErrorWeights> none{ones(1000)};
  std::ranges::fill(none[0].rows, 0.0);
  EXPECT_EQ(rounding_cost({.weight = weight, .scheme = scheme, .name = "w", .weights = none}), 0);
}

}  // namespace
}  // namespace quench
