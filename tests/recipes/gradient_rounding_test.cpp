// Output gradients rounded stochastically (RecipeOptions::stochastic_gradients) on the CPU: what it changes, what keys
// it, and that products are right in the mean.

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "autograd/recompute.h"
#include "core/ops/gemm.h"
#include "core/ops/loss/lm_head_loss.h"
#include "core/ops/quantize/quantize.h"
#include "recipes/float8/matrix.h"
#include "tests/recipes/float8_testing.h"

namespace quench::recipes {
namespace {

using namespace quench::testing;  // NOLINT: test helpers
using autograd::Variable;

constexpr std::uint64_t kSeed = 9;

bool equal(const Tensor& a, const Tensor& b) {
  const Tensor left = as_f32(a), right = as_f32(b);
  return std::equal(left.data<float>(), left.data<float>() + left.numel(), right.data<float>());
}

class GradientRounding : public ::testing::TestWithParam<std::string_view> {
 protected:
  // f32, so that nothing but the codes is rounded.
  const LinearCase c_{random_matrix(48, 32, 1, 1.0f, DType::f32), random_matrix(32, 32, 2, 1.0f, DType::f32),
                      random_matrix(48, 32, 3, 1.0f, DType::f32)};

  // One layer's forward and backward pass, of the given number; `again`: as a layer that runs twice.
  LinearResult run(std::optional<std::uint64_t> seed, std::uint64_t pass, bool again = false,
                   const std::string& name = "layer") const {
    const LinearPlan plan =
        find_recipe(GetParam())
            .plan({.name = name, .in_features = 32, .out_features = 32}, {.stochastic_gradients = seed});
    const Variable x = Variable::leaf(c_.x);
    nn::Parameter weight;
    weight.variable = Variable::leaf(c_.w);
    autograd::Tape tape;
    tape.set_pass(pass);
    Variable y;
    {
      const autograd::TapeScope scope(tape);
      const auto layer = [&](const std::vector<Variable>& in) {
        return std::vector{plan.kernel->apply(in[0], weight, {})};
      };
      y = again ? autograd::recompute(layer, {x})[0] : layer({x})[0];
    }
    const Tensor value = y.value();
    y.gradient()->contribute(c_.dy);
    tape.backward();
    return {value, x.grad(), weight.variable.grad()};
  }
};

TEST_P(GradientRounding, ChangesTheProductsOfTheGradientOnly) {
  const bool quantized_wgrad = GetParam() != "float8_rowwise_with_gw_hp";
  const LinearResult nearest = run({}, 1), stochastic = run(kSeed, 1);
  expect_same_values(stochastic.y, nearest.y, "y");
  EXPECT_FALSE(equal(stochastic.dx, nearest.dx));
  EXPECT_EQ(equal(stochastic.dw, nearest.dw), !quantized_wgrad);
  expect_same_values(run({}, 2).dx, nearest.dx, "without draws a pass is like another");
}

TEST_P(GradientRounding, DrawsAreThoseOfSeedLayerAndPass) {
  const LinearResult base = run(kSeed, 1), same = run(kSeed, 1), recomputed = run(kSeed, 1, true);
  expect_same_values(same.dx, base.dx, "dx");
  expect_same_values(same.dw, base.dw, "dw");
  expect_same_values(recomputed.dx, base.dx, "dx of a layer that runs again");
  expect_same_values(recomputed.dw, base.dw, "dw of a layer that runs again");
  EXPECT_FALSE(equal(run(kSeed, 2).dx, base.dx));
  EXPECT_FALSE(equal(run(kSeed, std::uint64_t{1} << 32).dx, base.dx));
  EXPECT_FALSE(equal(run(kSeed + 1, 1).dx, base.dx));
  EXPECT_FALSE(equal(run(kSeed, 1, false, "other").dx, base.dx));
}

double distance(const std::vector<double>& a, const Tensor& b) {
  double noise = 0, signal = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double value = b.data<float>()[i];
    noise += (a[i] - value) * (a[i] - value);
    signal += value * value;
  }
  return std::sqrt(noise / signal);
}

std::vector<double> values_of(const Tensor& t) {
  return {t.data<float>(), t.data<float>() + t.numel()};
}

TEST_P(GradientRounding, TheMeanOverPassesIsTheProductOfTheUnroundedGradient) {
  // W and x keep their codes: dx is linear in dy's, so that its mean tells theirs.
  const bool tensorwise = GetParam() == "float8_tensorwise", one_scale = GetParam() != "float8_rowwise";
  const auto read = [](const Tensor& t, Granularity granularity, bool power_of_two) {
    return dequantize(quantize_float8(t, {ElementFormat::e4m3, granularity, power_of_two}), DType::f32);
  };
  const Tensor dx = Tensor::empty({48, 32}, DType::f32), dw = Tensor::empty({32, 32}, DType::f32);
  gemm({.a = c_.dy, .b = read(c_.w, one_scale ? Granularity::tensor : Granularity::column, !tensorwise), .c = dx});
  const Tensor x = GetParam() == "float8_rowwise_with_gw_hp"
                       ? c_.x
                       : read(c_.x, tensorwise ? Granularity::tensor : Granularity::column, !tensorwise);
  gemm({.a = c_.dy, .b = x, .c = dw, .transpose_a = true});

  constexpr int kPasses = 400;
  std::vector<double> mean_dx(static_cast<std::size_t>(dx.numel())), mean_dw(static_cast<std::size_t>(dw.numel()));
  for (std::uint64_t pass = 0; pass < kPasses; ++pass) {
    const LinearResult result = run(kSeed, pass);
    for (std::size_t i = 0; i < mean_dx.size(); ++i) mean_dx[i] += result.dx.data<float>()[i] / kPasses;
    for (std::size_t i = 0; i < mean_dw.size(); ++i) mean_dw[i] += result.dw.data<float>()[i] / kPasses;
  }
  const LinearResult nearest = run({}, 0), once = run(kSeed, 0);
  // The root of the number of passes is 20; a rounding has sqrt(2) times the noise of the nearest.
  const double error = distance(values_of(nearest.dx), dx);
  EXPECT_GT(error, 0.01);
  EXPECT_NEAR(distance(values_of(once.dx), dx), std::sqrt(2.0) * error, 0.2 * error);
  EXPECT_LT(distance(mean_dx, dx), 2 * std::sqrt(2.0) * error / 20);
  if (GetParam() != "float8_rowwise_with_gw_hp") {
    EXPECT_LT(distance(mean_dw, dw), 2 * std::sqrt(2.0) * distance(values_of(nearest.dw), dw) / 20);
  }
}

// A producer of the gradient rounds to nearest, so it is not asked for codes.
TEST_P(GradientRounding, ProducersAreAskedForMaximaAtMost) {
  for (const bool stochastic : {false, true}) {
    const auto kernel =
        make_kernel(GetParam(), c_, {}, {.stochastic_gradients = stochastic ? std::optional(kSeed) : std::nullopt});
    nn::Parameter weight;
    weight.variable = Variable::leaf(c_.w);
    autograd::Tape tape;
    const autograd::TapeScope scope(tape);
    const Variable y = kernel->apply(Variable::leaf(c_.x), weight, {});
    const autograd::QuantOutputRequest& wanted = y.gradient()->quant_request();
    EXPECT_EQ(wanted.amax, GetParam() == "float8_tensorwise");
    EXPECT_EQ(wanted.rows, GetParam() != "float8_tensorwise" && !stochastic);
    EXPECT_EQ(wanted.column_amax, GetParam() == "float8_rowwise" && !stochastic);
  }
}

// Under scales by row a chunk of rows is scaled like the whole: the draws must continue from chunk to chunk too.
TEST(GradientRoundingOfTheHead, DrawsDoNotDependOnTheChunks) {
  const std::int64_t tokens = 48, width = 32, vocabulary = 64;
  const LinearCase c{
      random_matrix(tokens, width, 4, 1.0f, DType::f32), random_matrix(vocabulary, width, 5, 1.0f, DType::f32), {}};
  const Tensor labels = Tensor::zeros({tokens}, DType::i32);
  const auto run = [&](std::int64_t chunk_rows, std::uint64_t pass) {
    const auto kernel = make_kernel("float8_rowwise", c, {}, {.stochastic_gradients = kSeed});
    nn::Parameter weight;
    weight.variable = Variable::leaf(c.w);
    const Variable hidden = Variable::leaf(c.x);
    autograd::Tape tape;
    tape.set_pass(pass);
    Variable loss;
    {
      const autograd::TapeScope scope(tape);
      const auto products = kernel->head_gemms(weight);
      loss = autograd::lm_head_loss(hidden, weight.variable, labels, 1.0f, {.chunk_rows = chunk_rows}, nullptr,
                                    products.get());
    }
    tape.backward(loss);
    return hidden.grad();
  };
  const Tensor whole = run(tokens, 1);
  expect_same_values(run(16, 1), whole, "three chunks");
  expect_same_values(run(24, 1), whole, "two chunks");
  EXPECT_FALSE(equal(run(tokens, 2), whole));
}

TEST(GradientRoundingOfAMatrix, OneScaleGivesOneSetOfCodes) {
  const Tensor dy = random_matrix(40, 24, 6);
  const Float8Operand operand{ElementFormat::e5m2, Float8Scaling::tensor};
  const Float8Rounding rounding{RandomKey{1, 2, 3}};
  for (const bool now : {true, false}) {
    const Float8Matrix both(dy, {operand, operand, false}, {}, now, rounding);
    const QuantTensor turned = both.make_columnwise(dy);
    for (std::int64_t r = 0; r < 40; ++r)
      for (std::int64_t c = 0; c < 24; ++c)
        ASSERT_EQ(static_cast<const std::uint8_t*>(both.rowwise().payload().raw_data())[r * 24 + c],
                  static_cast<const std::uint8_t*>(turned.payload().raw_data())[c * 40 + r]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GradientRounding, ::testing::ValuesIn(kFloat8Recipes),
                         [](const auto& entry) { return std::string(entry.param); });

}  // namespace
}  // namespace quench::recipes
