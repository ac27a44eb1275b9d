// Layers of quantization-aware training whose scales are parameters.

#include <gmock/gmock.h>

#include "core/json/json.h"
#include "core/ops/gemm.h"
#include "core/ops/quantize/scale_gradient.h"
#include "nn/optim/table.h"
#include "recipes/qat/scale_parameter.h"
#include "recipes/recipe.h"
#include "tests/core/ops/op_testing.h"
#include "tests/recipes/float8_testing.h"
#include "tests/reference_numbers.h"
#include "tests/testing.h"

namespace quench::recipes {
namespace {

using autograd::Variable;
using testing::floats;
using testing::mixed;
using testing::random_matrix;

constexpr std::int64_t kBatch = 12, kOutputs = 6, kInputs = 32;

Tensor matrix(std::int64_t rows, std::int64_t columns, std::uint32_t first) {
  const Tensor t = Tensor::empty({rows, columns}, DType::f32);
  for (std::int64_t i = 0; i < t.numel(); ++i)
    t.data<float>()[i] = (static_cast<float>(mixed(first + static_cast<std::uint32_t>(i)) >> 16) - 32768) / 0x1p15f;
  return t;
}

double distance(const Tensor& actual, const std::vector<float>& expected) {
  const std::vector<float> found = floats(actual);
  return testing::relative_l2(std::span<const float>(found), std::span<const float>(expected));
}

// A layer [kOutputs,kInputs] under recipe, with scales of its own or without.
struct Layer {
  explicit Layer(const char* recipe, const RecipeOptions& options, bool learned = true) {
    RecipeOptions all = options;
    all.learned_scales = learned;
    kernel = find_recipe(recipe)
                 .plan({.name = "layer", .in_features = kInputs, .out_features = kOutputs, .parameters = {}}, all)
                 .kernel;
    weight.name = "layer.weight";
    weight.variable = Variable::leaf(matrix(kOutputs, kInputs, 10'000));
    weight.global_shape = {kOutputs, kInputs};
    if (learned) scales = kernel->parameters().at(0).parameter;
  }

  Tensor run(const Tensor& x, const Tensor& dy) const {
    const Variable in = Variable::leaf(x);
    autograd::Tape tape;
    Variable y;
    {
      const autograd::TapeScope scope(tape);
      y = kernel->apply(in, weight, {});
    }
    const Tensor value = y.value();
    y.gradient()->contribute(dy);
    tape.backward();
    return value;
  }

  std::shared_ptr<const nn::LinearKernel> kernel;
  nn::Parameter weight;
  nn::Parameter* scales = nullptr;
};

// tests/reference/make_learned_scales.py
TEST(LearnedScales, GradientsMatchPyTorch) {
  const Json reference = Json::parse_file(testing::source_dir() / "tests/reference/learned_scales.json");
  for (const int bits : {2, 4, 8})
    for (const std::int64_t group : {0, 8}) {
      SCOPED_TRACE(fmt::format("{} bits, groups of {}", bits, group));
      const Layer layer("qat_intx_weight_only", {.weight_bits = bits, .group_size = group});
      Tensor scales = layer.scales->variable.value();
      const Tensor above = matrix(kOutputs, scales.size(1), 90'000);
      for (std::int64_t i = 0; i < scales.numel(); ++i)
        scales.data<float>()[i] = (1.25f + above.data<float>()[i]) / static_cast<float>(int_range(bits).highest + 1);
      const Tensor y = layer.run(matrix(kBatch, kInputs, 1), matrix(kBatch, kOutputs, 50'000));
      const Json& expected = reference.at(fmt::format("int{} group {}", bits, group));
      const auto numbers = [&](const char* what) {
        std::vector<float> list;
        for (const Json& x : expected.at(what).as_array()) list.push_back(static_cast<float>(x.as_double()));
        return list;
      };
      EXPECT_LT(distance(y, numbers("y")), 1e-5);
      EXPECT_LT(distance(layer.weight.variable.grad(), numbers("dw")), 1e-5);
      EXPECT_LT(distance(layer.scales->variable.grad(), numbers("ds")), 1e-5);
    }
}

// Where every weight is clipped the values depend on the scale alone, and smoothly.
TEST(LearnedScales, GradientIsTheDerivativeWhereWeightsAreClipped) {
  const Tensor w = random_matrix(3, 16, 1, 1.0f, DType::f32), dvalue = random_matrix(3, 16, 2, 1.0f, DType::f32);
  for (std::int64_t i = 0; i < w.numel(); ++i) w.data<float>()[i] += w.data<float>()[i] < 0 ? -1.0f : 1.0f;
  const IntQuantOptions options{.bits = 3, .group_size = 8};
  const Tensor scales = Tensor::empty({3, 2}, DType::f32), found = Tensor::empty({3, 2}, DType::f32);
  for (std::int64_t i = 0; i < 6; ++i) scales.data<float>()[i] = 0.1f + 0.01f * static_cast<float>(i);
  scale_gradient({.w = w, .dvalue = dvalue, .scales = scales, .out = found, .options = options});
  const auto inner_product = [&] {
    const Tensor v = fake_quantize(w, {.kind = FakeFormat::Kind::integer, .integers = options}, false, scales).values;
    double sum = 0;
    for (std::int64_t i = 0; i < v.numel(); ++i)
      sum += static_cast<double>(v.data<float>()[i]) * static_cast<double>(dvalue.data<float>()[i]);
    return sum;
  };
  for (std::int64_t i = 0; i < 6; ++i) {
    float& scale = scales.data<float>()[i];
    const float middle = scale, step = 0.01f;
    scale = middle + step;
    const double above = inner_product();
    scale = middle - step;
    const double below = inner_product();
    scale = middle;
    EXPECT_NEAR(found.data<float>()[i], (above - below) / (2 * static_cast<double>(step)), 1e-3);
  }
}

TEST(LearnedScales, BeginAsThoseThatFollowFromTheWeight) {
  for (const char* recipe : {"qat_int8dyn_int4", "qat_int4_weight_only", "qat_int8"}) {
    SCOPED_TRACE(recipe);
    const Layer layer(recipe, {});
    layer.kernel->begin_with(layer.weight);
    EXPECT_EQ(layer.kernel->weight_scales(), layer.scales);
    const Tensor x = matrix(kBatch, kInputs, 1);
    const auto plain =
        find_recipe(recipe).plan({.name = "layer", .in_features = kInputs, .out_features = kOutputs}, {}).kernel;
    EXPECT_EQ(floats(layer.kernel->apply(Variable(x), layer.weight, {}).value()),
              floats(plain->apply(Variable(x), layer.weight, {}).value()));
  }
}

// Two micro-batches, the quantized weight kept between them or not.
TEST(LearnedScales, MicroBatchesAddUp) {
  std::vector<std::vector<float>> weights, scales;
  for (const bool keep : {false, true}) {
    const Layer layer("qat_int4_weight_only", {.keep_weights = keep, .group_size = 16});
    layer.kernel->begin_with(layer.weight);
    for (const std::uint32_t first : {1u, 1000u})
      (void)layer.run(matrix(kBatch, kInputs, first), matrix(kBatch, kOutputs, 50'000));
    weights.push_back(floats(layer.weight.variable.grad()));
    scales.push_back(floats(layer.scales->variable.grad()));
  }
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(scales[0], scales[1]);
  std::vector<float> sum(scales[0].size());
  for (const std::uint32_t first : {1u, 1000u}) {
    const Layer alone("qat_int4_weight_only", {.group_size = 16});
    alone.kernel->begin_with(alone.weight);
    (void)alone.run(matrix(kBatch, kInputs, first), matrix(kBatch, kOutputs, 50'000));
    const std::vector<float> part = floats(alone.scales->variable.grad());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  EXPECT_LT(distance(Tensor::from_values<float>({static_cast<std::int64_t>(sum.size())}, sum), scales[0]), 1e-6);
}

// Scales are neither decayed nor made orthogonal: without a gradient they stay, under every optimizer.
TEST(LearnedScales, OptimizersDoNotDecayThem) {
  for (const nn::OptimizerEntry& entry : nn::optimizer_table()) {
    SCOPED_TRACE(entry.name);
    const Layer layer("qat_int4_weight_only", {.group_size = 8});
    layer.kernel->begin_with(layer.weight);
    const std::vector<float> before = floats(layer.scales->variable.value());
    const auto optimizer = nn::make_optimizer(entry, {layer.scales}, {.weight_decay = 0.5});
    optimizer->step(1e-2, 1, Tensor::from_values<float>({1}, std::array{1.0f}));
    EXPECT_EQ(floats(layer.scales->variable.value()), before);
  }
}

// A layer that learns the products of another weight in 2 bits: scales of the largest magnitudes are too large for most
// values, and learned ones find better.
TEST(LearnedScales, EndBelowTheErrorOfThoseThatFollowFromTheWeight) {
  const Tensor wanted = matrix(kOutputs, kInputs, 10'000);
  for (const double rate : {3e-4, 1e-3, 1e-2}) {
    SCOPED_TRACE(rate);
    double errors[2];
    for (const bool learned : {false, true}) {
      Layer layer("qat_intx_weight_only", {.weight_bits = 2, .group_size = 8}, learned);
      layer.kernel->begin_with(layer.weight);
      std::vector<nn::Parameter*> parameters{&layer.weight};
      if (learned) parameters.push_back(layer.scales);
      const auto optimizer = nn::make_optimizer(nn::find_optimizer("adamw"), parameters,
                                                {.weight_decay = 0, .scale_lr_multiplier = 1e-2 / rate});
      const Tensor one = Tensor::from_values<float>({1}, std::array{1.0f});
      double& error = errors[learned ? 1 : 0];  // mean of the last hundred steps: codes flip until the end
      error = 0;
      for (int step = 1; step <= 300; ++step) {
        const Tensor x = matrix(kBatch, kInputs, static_cast<std::uint32_t>(step) * 1000);
        const Tensor y = Tensor::empty({kBatch, kOutputs}, DType::f32);
        gemm({.a = x, .b = wanted, .c = y, .transpose_b = true});
        const Tensor dy = layer.kernel->apply(Variable(x), layer.weight, {}).value().clone();
        if (step > 200) error += distance(dy, floats(y)) / 100;
        for (std::int64_t i = 0; i < dy.numel(); ++i) dy.data<float>()[i] -= y.data<float>()[i];
        (void)layer.run(x, dy);
        optimizer->step(rate, step, one);
        optimizer->zero_grad();
      }
      if (!learned) continue;
      for (const float scale : floats(layer.scales->variable.value())) EXPECT_GT(scale, 0);
    }
    EXPECT_LT(errors[1], 0.97 * errors[0]);
  }
}

TEST(LearnedScales, ExistForLinearLayersOnly) {
  const RecipeOptions options{.learned_scales = true};
  const nn::LinearInfo head{.name = "lm_head", .in_features = 64, .out_features = 80};
  EXPECT_EQ(kQatInt4WeightOnly.plan(head, options).kernel->weight_scales(), nullptr);
  EXPECT_THAT(kQatInt4WeightOnly.plan_experts({.in_features = 64, .out_features = 80}, options).skipped_because,
              ::testing::HasSubstr("recipe.learned_scales"));
}

}  // namespace
}  // namespace quench::recipes
