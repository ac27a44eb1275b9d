// Delayed scaling of a linear layer on the CPU: which scale a pass uses, and what it records.

#include "recipes/delayed_scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "autograd/recompute.h"
#include "core/ops/gemm.h"
#include "core/ops/quantize/quantize.h"
#include "recipes/float8/matrix.h"
#include "tests/recipes/float8_testing.h"

namespace quench::recipes {
namespace {

using namespace quench::testing;  // NOLINT: test helpers
using autograd::Variable;
using ::testing::HasSubstr;

float value_of(const Tensor& t) {
  return *t.to(Device{}).data<float>();
}

float amax_of(const Tensor& t) {
  return value_of(amax(t, Granularity::tensor));
}

Tensor times(const Tensor& t, float factor) {
  const Tensor values = as_f32(t).clone(), result = Tensor::empty(t.shape(), t.dtype());
  scale({.x = values, .factor = factor});
  cast({values, result});
  return result;
}

class DelayedScalingLayer : public ::testing::Test {
 protected:
  const LinearCase c_{random_matrix(48, 32, 1), random_matrix(64, 32, 2), random_matrix(48, 64, 3)};
  const std::shared_ptr<DelayedScaling> scaling_ =
      std::make_shared<DelayedScaling>(DelayedScalingOptions{.history = 2});
  const std::shared_ptr<const nn::LinearKernel> delayed_ =
      make_kernel("float8_tensorwise", c_, {}, {.delayed_scaling = scaling_});
  const std::shared_ptr<const nn::LinearKernel> dynamic_ = make_kernel("float8_tensorwise", c_, {});

  void SetUp() override { scaling_->allocate(Device{}); }

  [[nodiscard]] float recorded(std::int64_t operand) const { return scaling_->recorded().data<float>()[operand]; }
  void end_step() {
    const float* values = scaling_->recorded().data<float>();
    scaling_->observe({values, static_cast<std::size_t>(scaling_->recorded().numel())});
    scaling_->advance();
  }
  static void expect_same(const LinearResult& got, const LinearResult& wanted) {
    expect_same_values(got.y, wanted.y, "y");
    expect_same_values(got.dx, wanted.dx, "dx");
    expect_same_values(got.dw, wanted.dw, "dw");
  }
  // The layer's results with x and dy cast under these scales, in f32.
  [[nodiscard]] static LinearResult expected(const LinearCase& c, float x_scale, float dy_scale) {
    const auto read = [](const Tensor& t, float by, ElementFormat element) {
      Tensor scale = Tensor::empty({}, DType::f32);
      *scale.data<float>() = by;
      return dequantize(cast_float8(t, scale, element, Granularity::tensor), DType::f32);
    };
    const Tensor x = read(c.x, x_scale, ElementFormat::e4m3), dy = read(c.dy, dy_scale, ElementFormat::e5m2);
    const Tensor w = dequantize(quantize_float8(c.w, {ElementFormat::e4m3, Granularity::tensor}), DType::f32);
    LinearResult r{Tensor::empty({48, 64}, DType::f32), Tensor::empty({48, 32}, DType::f32),
                   Tensor::empty({64, 32}, DType::f32)};
    gemm({.a = x, .b = w, .c = r.y, .transpose_b = true});
    gemm({.a = dy, .b = w, .c = r.dx});
    gemm({.a = dy, .b = x, .c = r.dw, .transpose_a = true});
    return r;
  }
  // Equal up to the rounding of the results to bf16.
  static void expect_near(const LinearResult& got, const LinearResult& wanted) {
    for (const auto& [a, b] : {std::pair(got.y, wanted.y), {got.dx, wanted.dx}, {got.dw, wanted.dw}}) {
      const Tensor values = as_f32(a);
      float most = amax_of(b);
      for (std::int64_t i = 0; i < values.numel(); ++i)
        ASSERT_NEAR(values.data<float>()[i], b.data<float>()[i], 0x1p-8f * std::abs(b.data<float>()[i]) + 1e-5f * most)
            << i;
    }
  }
};

TEST_F(DelayedScalingLayer, TheFirstStepIsDynamicScaling) {
  const LinearResult wanted = run_linear(*dynamic_, c_);
  expect_same(run_linear(*delayed_, c_), wanted);
  EXPECT_EQ(recorded(0), amax_of(c_.x));
  EXPECT_EQ(recorded(1), amax_of(c_.dy));
  // A second micro-batch scales by its own amax too; the larger one is recorded.
  LinearCase small = c_;
  small.x = times(c_.x, 0.25f);
  expect_same(run_linear(*delayed_, small), run_linear(*dynamic_, small));
  EXPECT_EQ(recorded(0), amax_of(c_.x));
}

TEST_F(DelayedScalingLayer, LaterStepsUseTheLargestAmaxOfTheWindow) {
  const auto step = [&](float factor) {
    LinearCase c = c_;
    c.x = times(c_.x, factor);
    c.dy = times(c_.dy, factor);
    const LinearResult result = run_linear(*delayed_, c);
    end_step();
    return std::pair(result, c);
  };
  const float x_amax = amax_of(c_.x), dy_amax = amax_of(c_.dy);
  (void)step(1.0f);
  // Factors of the amax in the scale of steps 2 to 5; the third saturates.
  const std::pair<float, float> steps[] = {{0.5f, 1.0f}, {4.0f, 1.0f}, {1.0f, 4.0f}, {1.0f, 4.0f}, {1.0f, 1.0f}};
  for (const auto& [factor, scaled_by] : steps) {
    SCOPED_TRACE(factor);
    const auto [result, c] = step(factor);
    expect_near(result, expected(c, 448.0f / (x_amax * scaled_by), 57344.0f / (dy_amax * scaled_by)));
  }
}

TEST_F(DelayedScalingLayer, EvaluationUsesTheStoredScaleAndRecordsNothing) {
  (void)run_linear(*delayed_, c_);
  end_step();
  nn::Parameter weight;
  weight.variable = Variable(c_.w);
  const Variable large(times(c_.x, 8.0f));
  const Variable y = delayed_->apply(large, weight, {});
  const LinearResult wanted = expected({large.value(), c_.w, c_.dy}, 448.0f / amax_of(c_.x), 57344.0f / amax_of(c_.dy));
  const Tensor values = as_f32(y.value());
  for (std::int64_t i = 0; i < values.numel(); ++i)
    ASSERT_NEAR(values.data<float>()[i], wanted.y.data<float>()[i],
                0.01f * std::abs(wanted.y.data<float>()[i]) + 1e-3f);
  EXPECT_EQ(recorded(0), 0.0f);
  const autograd::QuantOutputRequest request = delayed_->input_quant_request(weight);
  EXPECT_FALSE(request.amax);
  EXPECT_TRUE(request.scale.defined()) << "codes under the stored scale";
  EXPECT_FALSE(request.transposed_codes);
}

TEST_F(DelayedScalingLayer, RecomputedLayersHaveTheScalesAndRecordsOfTheFirstTime) {
  const auto run = [&](bool again) {
    const Variable x = Variable::leaf(c_.x);
    nn::Parameter weight;
    weight.variable = Variable::leaf(c_.w);
    autograd::Tape tape;
    Variable y;
    {
      const autograd::TapeScope scope(tape);
      const auto layer = [&](const std::vector<Variable>& in) {
        return std::vector{delayed_->apply(in[0], weight, {})};
      };
      y = again ? autograd::recompute(layer, {x})[0] : layer({x})[0];
    }
    const Tensor value = y.value();
    y.gradient()->contribute(c_.dy);
    tape.backward();
    return LinearResult{value, x.grad(), weight.variable.grad()};
  };
  for (int step = 0; step < 2; ++step) {
    const LinearResult once = run(false);
    const float x = recorded(0), dy = recorded(1);
    expect_same(run(true), once);
    EXPECT_EQ(recorded(0), x);
    EXPECT_EQ(recorded(1), dy);
    end_step();
  }
}

TEST_F(DelayedScalingLayer, TheProducersAmaxIsRecordedWithoutAnotherPass) {
  (void)run_linear(*delayed_, c_);
  end_step();
  nn::Parameter weight;
  weight.variable = Variable::leaf(c_.w);
  autograd::Tape tape;
  const autograd::TapeScope scope(tape);
  const autograd::QuantOutputRequest request = delayed_->input_quant_request(weight);
  EXPECT_TRUE(request.amax);
  EXPECT_EQ(request.amax_into.raw_data(), scaling_->recorded().raw_data());
  const QuantOutputs outputs = autograd::make_quant_outputs(request, c_.x);
  EXPECT_FALSE(outputs.own_amax().defined()) << "of several micro-batches";
  *outputs.amax.data<float>() = 123.0f;  // as if recorded
  (void)delayed_->apply(Variable(autograd::FusedValue(c_.x, outputs)), weight, {});
  EXPECT_EQ(recorded(0), 123.0f);
  // Not another layer's.
  const QuantOutputs others{.amax = Tensor::zeros({}, DType::f32), .accumulates_amax = true};
  scaling_->discard();
  (void)delayed_->apply(Variable(autograd::FusedValue(c_.x, others)), weight, {});
  EXPECT_EQ(recorded(0), amax_of(c_.x));
}

TEST_F(DelayedScalingLayer, ANonFiniteStepLeavesScalesAsTheyAre) {
  (void)run_linear(*delayed_, c_);
  end_step();
  const LinearResult wanted = run_linear(*delayed_, c_);
  LinearCase bad = c_;
  bad.x = c_.x.clone();
  bad.x.data<bfloat16>()[7] = bfloat16(std::numeric_limits<float>::quiet_NaN());
  (void)run_linear(*delayed_, bad);
  EXPECT_TRUE(std::isnan(recorded(0)));
  end_step();
  expect_same(run_linear(*delayed_, c_), wanted);
  // Dropped.
  bad.x = times(c_.x, 16.0f);
  (void)run_linear(*delayed_, bad);
  scaling_->discard();
  end_step();
  expect_same(run_linear(*delayed_, c_), wanted);
}

TEST_F(DelayedScalingLayer, OperandsOfZerosScaleDynamicallyAfterwards) {
  LinearCase zero = c_;
  zero.dy = Tensor::zeros(c_.dy.shape(), c_.dy.dtype());
  (void)run_linear(*delayed_, zero);
  EXPECT_TRUE(scaling_->waits_for_amax());
  end_step();
  EXPECT_TRUE(scaling_->waits_for_amax());
  LinearCase first = c_;
  first.dy = times(c_.dy, 1e-6f);
  expect_same(run_linear(*delayed_, first), run_linear(*dynamic_, first));
  end_step();
  EXPECT_FALSE(scaling_->waits_for_amax());
  expect_same(run_linear(*delayed_, first), run_linear(*dynamic_, first));
}

TEST_F(DelayedScalingLayer, RestoredHistoriesGiveTheScalesAgain) {
  (void)run_linear(*delayed_, c_);
  end_step();
  const LinearResult wanted = run_linear(*delayed_, c_);
  const auto other = std::make_shared<DelayedScaling>(DelayedScalingOptions{.history = 2});
  const auto kernel = make_kernel("float8_tensorwise", c_, {}, {.delayed_scaling = other});
  other->allocate(Device{});
  auto from = scaling_->histories(), to = other->histories();
  ASSERT_EQ(from.size(), 1u);
  EXPECT_EQ(from[0].name, "layer");
  to[0].amax.copy_from(from[0].amax);
  other->restored();
  EXPECT_FALSE(other->waits_for_amax());
  LinearCase small = c_;
  small.x = times(c_.x, 0.25f);
  expect_same(run_linear(*kernel, small), run_linear(*delayed_, small));
  expect_same(run_linear(*kernel, c_), wanted);
  for (const float bad : {-1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    to[0].amax.data<float>()[0] = bad;
    try {
      other->restored();
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt);
      EXPECT_THAT(error.what(), HasSubstr("the stored amax history of layer holds a value"));
    }
  }
}

TEST(DelayedScalingPlan, HeadAndOtherRecipesAreNotScaled) {
  const auto scaling = std::make_shared<DelayedScaling>(DelayedScalingOptions{});
  const RecipeOptions options{.delayed_scaling = scaling};
  const auto plan = [&](const char* name) {
    (void)find_recipe("float8_tensorwise").plan({.name = name, .in_features = 32, .out_features = 32}, options);
  };
  plan("lm_head");
  EXPECT_THAT(scaling->describe(), HasSubstr(" 0 layers"));
  plan("a");
  plan("b");
  plan("a");
  EXPECT_THAT(scaling->describe(), HasSubstr(" 2 layers, amax of the last 16 steps;"));
}

}  // namespace
}  // namespace quench::recipes
