// The recorder of what quantization loses, at one layer and at its own level.

#include "recipes/health.h"

#include <gtest/gtest.h>

#include "autograd/recompute.h"
#include "core/ops/quantize/quantize.h"
#include "tests/recipes/float8_testing.h"

namespace quench::recipes {
namespace {

using namespace quench::testing;  // NOLINT: test helpers

QuantTensor row_codes(const Tensor& x, bool power_of_two = true) {
  return quantize_float8_rows(x, ElementFormat::e4m3, power_of_two, Tensor());
}

QuantTensor tensorwise_codes(const Tensor& x, ElementFormat element) {
  return cast_float8(x, float8_scale(amax(x, Granularity::tensor), element, false), element, Granularity::tensor);
}

QuantError error_of(const Tensor& x, const QuantTensor& codes) {
  const Tensor out = Tensor::empty({QuantError::kFields}, DType::f64);
  quant_error({x, codes, out});
  return QuantError::read(out);
}

void expect_same(const QuantError& a, const QuantError& b) {
  EXPECT_EQ(a.signal, b.signal);
  EXPECT_EQ(a.noise, b.noise);
  EXPECT_EQ(a.saturated, b.saturated);
  EXPECT_EQ(a.underflows, b.underflows);
  EXPECT_EQ(a.most, b.most);
}

const LinearCase& some_case() {
  static const LinearCase c{random_matrix(40, 96, 1), random_matrix(80, 96, 2), random_matrix(40, 80, 3)};
  return c;
}

std::vector<OperandHealth> health_of(std::string_view recipe, const LinearCase& c, RecipeOptions options = {}) {
  options.health = std::make_shared<HealthRecorder>();
  const auto kernel = make_kernel(recipe, c, {}, options);
  options.health->arm();
  (void)run_linear(*kernel, c);
  return options.health->collect();
}

TEST(Health, ALayerRecordsTheErrorOfItsOperands) {
  const LinearCase& c = some_case();
  for (const std::string_view recipe : {"float8_tensorwise", "float8_rowwise", "float8_rowwise_with_gw_hp"}) {
    SCOPED_TRACE(recipe);
    const bool tensorwise = recipe == "float8_tensorwise";
    const auto codes = [&](const Tensor& x, ElementFormat element) {
      return tensorwise ? tensorwise_codes(x, element) : row_codes(x);
    };
    const ElementFormat gradients = tensorwise ? ElementFormat::e5m2 : ElementFormat::e4m3;
    const std::vector<OperandHealth> health = health_of(recipe, c);
    ASSERT_EQ(health.size(), 3u);
    const std::array<std::tuple<LayerOperand, Tensor, ElementFormat>, 3> expected{
        {{LayerOperand::input, c.x, ElementFormat::e4m3},
         {LayerOperand::weight, c.w, ElementFormat::e4m3},
         {LayerOperand::output_gradient, c.dy, gradients}}};
    for (std::size_t i = 0; i < 3; ++i) {
      const auto& [operand, x, element] = expected[i];
      SCOPED_TRACE(to_string(operand));
      EXPECT_EQ(health[i].layer, "layer");
      EXPECT_EQ(health[i].operand, operand);
      EXPECT_EQ(health[i].format, element);
      EXPECT_EQ(health[i].elements, x.numel());
      EXPECT_EQ(health[i].order, static_cast<std::int64_t>(i));
      EXPECT_TRUE(health[i].finite());
      EXPECT_GT(health[i].error.noise, 0);
      expect_same(health[i].error, error_of(x, codes(x, element)));
    }
  }
}

// Normally distributed values are dense for the format: what the bounds of warnings rest on.
TEST(Health, DenseValuesHaveTheRatioOfTheirFormat) {
  EXPECT_NEAR(dense_sqnr(ElementFormat::e4m3), 32.2, 0.05);
  EXPECT_NEAR(dense_sqnr(ElementFormat::e5m2), 26.2, 0.05);
  const Tensor normal = random_matrix(256, 512, 5, 3.7f, DType::f32);
  EXPECT_NEAR(error_of(normal, row_codes(normal)).sqnr(), dense_sqnr(ElementFormat::e4m3), 1.0);
  for (const ElementFormat element : {ElementFormat::e4m3, ElementFormat::e5m2})
    EXPECT_NEAR(error_of(normal, tensorwise_codes(normal, element)).sqnr(), dense_sqnr(element), 1.0)
        << to_string(element);
}

TEST(Health, NothingIsRecordedUnlessArmed) {
  RecipeOptions options;
  options.health = std::make_shared<HealthRecorder>();
  const auto kernel = make_kernel("float8_rowwise", some_case(), {}, options);
  (void)run_linear(*kernel, some_case());
  EXPECT_FALSE(options.health->armed());
  EXPECT_TRUE(options.health->collect().empty());
  options.health->arm();
  EXPECT_TRUE(options.health->armed());
  (void)run_linear(*kernel, some_case());
  EXPECT_EQ(options.health->collect().size(), 3u);
  EXPECT_FALSE(options.health->armed());
  (void)run_linear(*kernel, some_case());
  EXPECT_TRUE(options.health->collect().empty());
}

TEST(Health, RecordingChangesNoBit) {
  const LinearCase& c = some_case();
  const LinearResult without = run_linear(*make_kernel("float8_rowwise", c, {}), c);
  RecipeOptions options;
  options.health = std::make_shared<HealthRecorder>();
  const auto kernel = make_kernel("float8_rowwise", c, {}, options);
  options.health->arm();
  const LinearResult with = run_linear(*kernel, c);
  expect_same_values(with.y, without.y, "y");
  expect_same_values(with.dx, without.dx, "dx");
  expect_same_values(with.dw, without.dw, "dw");
}

TEST(Health, TheFirstMicroBatchCounts) {
  const LinearCase& first = some_case();
  const LinearCase second{random_matrix(24, 96, 11), first.w, random_matrix(24, 80, 13)};
  RecipeOptions options;
  options.health = std::make_shared<HealthRecorder>();
  const auto kernel = make_kernel("float8_rowwise", first, {}, options);
  options.health->arm();
  (void)run_linear(*kernel, first);
  (void)run_linear(*kernel, second);
  const auto health = options.health->collect();
  ASSERT_EQ(health.size(), 3u);
  EXPECT_EQ(health[0].elements, first.x.numel());
  expect_same(health[2].error, error_of(first.dy, row_codes(first.dy)));
}

TEST(Health, AForwardPassThatRunsAgainIsRecordedOnce) {
  const LinearCase& c = some_case();
  RecipeOptions options;
  options.health = std::make_shared<HealthRecorder>();
  const auto kernel = make_kernel("float8_rowwise", c, {}, options);
  const autograd::Variable x = autograd::Variable::leaf(c.x);
  nn::Parameter weight;
  weight.variable = autograd::Variable::leaf(c.w, DType::bf16);
  options.health->arm();
  autograd::Tape tape(autograd::Recompute::full);
  int runs = 0;
  autograd::Variable y;
  {
    const autograd::TapeScope scope(tape);
    y = autograd::recompute(
        [&](const std::vector<autograd::Variable>& in) {
          ++runs;
          return std::vector<autograd::Variable>{kernel->apply(in[0], weight, {})};
        },
        {x})[0];
  }
  y.gradient()->contribute(c.dy);
  tape.backward();
  EXPECT_EQ(runs, 2);
  const auto health = options.health->collect();
  ASSERT_EQ(health.size(), 3u);
  EXPECT_EQ(health[0].order, 0);
  EXPECT_EQ(health[1].order, 1);
  EXPECT_EQ(health[2].order, 2);
  expect_same(health[2].error, error_of(c.dy, row_codes(c.dy)));
}

TEST(Health, ProductsInHighPrecisionHaveNoOperandsToRecord) {
  const auto operands = [](const std::vector<LinearGemm>& high_precision) {
    RecipeOptions options;
    options.high_precision = high_precision;
    std::vector<LayerOperand> result;
    for (const OperandHealth& health : health_of("float8_rowwise", some_case(), options))
      result.push_back(health.operand);
    return result;
  };
  using enum LayerOperand;
  EXPECT_EQ(operands({LinearGemm::forward}), std::vector{output_gradient});
  EXPECT_EQ(operands({LinearGemm::dgrad}), (std::vector{input, weight}));
  EXPECT_EQ(operands({LinearGemm::wgrad}), (std::vector{input, weight, output_gradient}));
  EXPECT_TRUE(operands({LinearGemm::forward, LinearGemm::dgrad}).empty());
}

TEST(Health, LayersComeInOrderAndKeepTheirNumber) {
  HealthRecorder recorder;
  EXPECT_EQ(recorder.add_layer("a"), 0u);
  EXPECT_EQ(recorder.add_layer("b"), 1u);
  EXPECT_EQ(recorder.add_layer("a"), 0u);
  const Tensor x = random_matrix(3, 7, 21), none = Tensor::empty({0, 7}, DType::bf16);
  recorder.arm();
  recorder.record(1, LayerOperand::output_gradient, x, row_codes(x), x.numel());
  recorder.record(0, LayerOperand::output_gradient, none, row_codes(none), 0);
  recorder.record(0, LayerOperand::input, x, QuantTensor(), x.numel());
  const auto health = recorder.collect();
  ASSERT_EQ(health.size(), 2u);
  EXPECT_EQ(health[0].layer, "a");
  EXPECT_EQ(health[0].order, 1);
  EXPECT_EQ(health[0].error.signal, 0);
  EXPECT_EQ(health[0].saturated_share(), 0);
  EXPECT_EQ(health[1].layer, "b");
  EXPECT_EQ(health[1].order, 0);
  EXPECT_EQ(health[1].error.most, error_of(x, row_codes(x)).most);
  // Layers that come later get their place.
  const std::size_t late = recorder.add_layer("c");
  recorder.arm();
  recorder.record(late, LayerOperand::weight, x, row_codes(x), x.numel());
  ASSERT_EQ(recorder.collect().size(), 1u);
}

TEST(Health, WhatIsNotFiniteIsFoundInTheOrderOfTheStep) {
  HealthRecorder recorder;
  for (const char* name : {"a", "b", "c"}) (void)recorder.add_layer(name);
  const Tensor good = random_matrix(8, 16, 31);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const Tensor x = random_matrix(8, 16, 32, 1.0f, DType::f32);
    x.data<float>()[17] = bad;
    recorder.arm();
    recorder.record(0, LayerOperand::input, good, row_codes(good), good.numel());
    recorder.record(2, LayerOperand::input, x, row_codes(x), x.numel());
    recorder.record(1, LayerOperand::output_gradient, x, row_codes(x), x.numel());
    const auto health = recorder.collect();
    ASSERT_EQ(health.size(), 3u);
    const OperandHealth* first = first_nonfinite(health);
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(first->layer, "c");
    EXPECT_FALSE(first->finite());
    EXPECT_TRUE(health[0].finite());
  }
  EXPECT_EQ(first_nonfinite({}), nullptr);
}

}  // namespace
}  // namespace quench::recipes
