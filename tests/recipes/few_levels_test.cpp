// Layers of quantization-aware training whose weights have two, three or four levels.

#include <gmock/gmock.h>

#include <set>

#include "core/ops/gemm.h"
#include "core/ops/quantize/scale_gradient.h"
#include "core/ops/quantize/weight_grids.h"
#include "nn/modules/low_rank_adapter.h"
#include "nn/optim/table.h"
#include "recipes/qat/scale_parameter.h"
#include "tests/core/ops/op_testing.h"
#include "tests/recipes/float8_testing.h"
#include "tests/recipes/qat_testing.h"
#include "tests/testing.h"

namespace quench::recipes {
namespace {

using autograd::Variable;
using testing::floats;
using testing::LinearCase;
using testing::random_matrix;

constexpr std::int64_t kBatch = 12, kOutputs = 6, kInputs = 32;

LinearCase layer_case(DType dtype = DType::f32) {
  return {random_matrix(kBatch, kInputs, 1, 1.0f, dtype), random_matrix(kOutputs, kInputs, 2, 0.3f, dtype),
          random_matrix(kBatch, kOutputs, 3, 1.0f, dtype)};
}

FakeFormat format_of(IntMapping grid, std::int64_t group, std::optional<DType> scale_dtype = {}) {
  FakeFormat format = testing::integers(stored_bits(grid), group, grid);
  format.integers.scale_dtype = scale_dtype;
  return format;
}

std::vector<float> product(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b) {
  const Tensor c =
      Tensor::empty({transpose_a ? a.size(1) : a.size(0), transpose_b ? b.size(0) : b.size(1)}, DType::f32);
  gemm({.a = a, .b = b, .c = c, .transpose_a = transpose_a, .transpose_b = transpose_b});
  return floats(c);
}

TEST(FewLevelLayers, ComputeWithTheLevelsAndPassGradientsInRange) {
  const LinearCase c = layer_case();
  for (const WeightGrid& grid : few_level_grids())
    for (const std::int64_t group : {0, 8}) {
      SCOPED_TRACE(fmt::format("{} group {}", grid.name, group));
      const auto kernel =
          testing::make_kernel("qat_intx_weight_only", c, {}, {.group_size = group, .weight_grid = grid.mapping});
      const testing::LinearResult found = testing::run_linear(*kernel, c, {}, DType::f32);
      const FakeQuantized w = fake_quantize(c.w, format_of(grid.mapping, group), true);
      EXPECT_EQ(floats(found.y), product(c.x, w.values, false, true));
      EXPECT_EQ(floats(found.dx), product(c.dy, w.values, false, false));
      const Tensor dw = Tensor::empty({kOutputs, kInputs}, DType::f32);
      gemm({.a = c.dy, .b = c.x, .c = dw, .transpose_a = true});
      stop_gradient(dw, w.mask);
      EXPECT_EQ(floats(found.dw), floats(dw));
      std::set<float> levels;
      for (std::int64_t i = 0; i < (group > 0 ? group : kInputs); ++i) levels.insert(w.values.data<float>()[i]);
      EXPECT_LE(levels.size(), grid.mapping == IntMapping::stretched ? 4u
                               : grid.mapping == IntMapping::ternary ? 3u
                                                                     : 2u);
    }
}

struct LearnedLayer {
  LearnedLayer(const LinearCase& c, const RecipeOptions& options) {
    RecipeOptions all = options;
    all.learned_scales = true;
    kernel = testing::make_kernel("qat_intx_weight_only", c, {}, all);
    weight.name = "layer.weight";
    weight.variable = Variable::leaf(c.w.clone());
    weight.global_shape = c.w.shape();
    scales = kernel->parameters().at(0).parameter;
    kernel->begin_with(weight);
  }
  Tensor run(const LinearCase& c) const {
    autograd::Tape tape;
    Variable y;
    {
      const autograd::TapeScope scope(tape);
      y = kernel->apply(Variable::leaf(c.x), weight, {});
    }
    const Tensor value = y.value();
    y.gradient()->contribute(c.dy);
    tape.backward();
    return value;
  }

  std::shared_ptr<const nn::LinearKernel> kernel;
  nn::Parameter weight;
  nn::Parameter* scales = nullptr;
};

TEST(FewLevelLayers, LearnedScalesBeginAsThoseOfTheWeightAndHaveTheFormulasGradient) {
  const LinearCase c = layer_case();
  for (const WeightGrid& grid : few_level_grids())
    for (const std::int64_t group : {0, 8})
      for (const std::optional<DType> scale_dtype : {std::optional<DType>(), std::optional(DType::f16)}) {
        SCOPED_TRACE(fmt::format("{} group {}", grid.name, group));
        const RecipeOptions options{.group_size = group, .weight_grid = grid.mapping, .scale_dtype = scale_dtype};
        const LearnedLayer layer(c, options);
        const FakeFormat format = format_of(grid.mapping, group, scale_dtype);
        const Tensor first = layer.scales->variable.value();
        EXPECT_EQ(floats(first), floats(int_scales(c.w, format.integers).scales));
        for (std::int64_t i = 0; i < first.numel(); ++i) first.data<float>()[i] *= 0.789f;
        layer.scales->mark_changed();
        const Tensor used = used_scales(first, format.integers);
        for (const float scale : floats(used)) EXPECT_EQ(scale, scale_dtype ? float(float16(scale)) : scale);
        const FakeQuantized w = fake_quantize(c.w, format, true, used);
        EXPECT_EQ(floats(layer.run(c)), product(c.x, w.values, false, true));
        const Tensor dw = Tensor::empty({kOutputs, kInputs}, DType::f32), ds = Tensor::empty(first.shape(), DType::f32);
        gemm({.a = c.dy, .b = c.x, .c = dw, .transpose_a = true});
        const std::int64_t elements = group > 0 ? group : kInputs;
        const int largest = grid.mapping == IntMapping::stretched ? 3 : 1;
        scale_gradient({.w = c.w,
                        .dvalue = dw,
                        .scales = used,
                        .out = ds,
                        .options = format.integers,
                        .factor = 1.0f / std::sqrt(static_cast<float>(elements * largest))});
        const std::vector<float> found = floats(layer.scales->variable.grad()), expected = floats(ds);
        for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5f);
        stop_gradient(dw, w.mask);
        EXPECT_EQ(floats(layer.weight.variable.grad()), floats(dw));
      }
}

// The error of a layer that learns the outputs of another weight, at the end.
double learned_error(const RecipeOptions& options) {
  const LinearCase first = layer_case();
  LinearCase c = first;
  const Tensor wanted = random_matrix(kOutputs, kInputs, 2, 0.3f, DType::f32);
  const LearnedLayer layer(first, options);
  const double rate = 1e-3;
  const auto optimizer =
      nn::make_optimizer(nn::find_optimizer("adamw"), {const_cast<nn::Parameter*>(&layer.weight), layer.scales},
                         {.weight_decay = 0, .scale_lr_multiplier = 1e-2 / rate});
  const Tensor one = Tensor::from_values<float>({1}, std::array{1.0f});
  double error = 0;
  for (int step = 1; step <= 300; ++step) {
    c.x = random_matrix(kBatch, kInputs, static_cast<std::uint64_t>(100 + step), 1.0f, DType::f32);
    const Tensor y = Tensor::empty({kBatch, kOutputs}, DType::f32);
    gemm({.a = c.x, .b = wanted, .c = y, .transpose_b = true});
    c.dy = layer.kernel->apply(Variable(c.x), layer.weight, {}).value().clone();
    const std::vector<float> found = floats(c.dy), right = floats(y);
    if (step > 200) error += testing::relative_l2(std::span<const float>(found), std::span<const float>(right)) / 100;
    for (std::int64_t i = 0; i < c.dy.numel(); ++i) c.dy.data<float>()[i] -= y.data<float>()[i];
    (void)layer.run(c);
    optimizer->step(rate, step, one);
    optimizer->zero_grad();
  }
  for (const float scale : floats(layer.scales->variable.value())) EXPECT_GT(scale, 0);
  return error;
}

TEST(FewLevelLayers, MoreLevelsLearnMore) {
  const double binary = learned_error({.group_size = 16, .weight_grid = IntMapping::binary}),
               ternary = learned_error({.group_size = 16, .weight_grid = IntMapping::ternary}),
               stretched = learned_error({.group_size = 16, .weight_grid = IntMapping::stretched}),
               integers = learned_error({.weight_bits = 2, .group_size = 16});
  EXPECT_LT(ternary, binary);
  EXPECT_LT(stretched, ternary);
  EXPECT_LT(stretched, integers);
}

TEST(FewLevelLayers, SchemesFollowFromTheOptions) {
  const auto scheme = [](const char* recipe, const RecipeOptions& options) {
    return find_recipe(recipe).capabilities.scheme(options);
  };
  EXPECT_EQ(scheme("qat_intx_weight_only", {.group_size = 64, .weight_grid = IntMapping::stretched}),
            "seq_weight_only_g64");
  EXPECT_EQ(scheme("qat_intx_weight_only", {.group_size = 0, .weight_grid = IntMapping::binary}), "binary_weight_only");
  EXPECT_EQ(scheme("qat_int8dyn_intx", {.weight_grid = IntMapping::ternary}), "int8dyn_ternary_g32");
  EXPECT_EQ(scheme("qat_int8dyn_intx", {.group_size = 0, .weight_grid = IntMapping::ternary}), "int8dyn_ternary_row");
  EXPECT_EQ(format_of(IntMapping::stretched, 64).describe(), "seq in groups of 64");
}

TEST(FewLevelLayers, ExpertsHaveScalesOfTheirValues) {
  const RecipeOptions options{.group_size = 8, .weight_grid = IntMapping::ternary};
  const auto plan = kQatIntxWeightOnly.plan_experts({.name = "experts", .in_features = 32, .out_features = 8}, options);
  ASSERT_NE(plan.kernel, nullptr) << plan.skipped_because;
  autograd::TokenPermutation rows;
  rows.choices = 1;
  rows.ends = Tensor::from_values<std::int32_t>({2}, std::vector<std::int32_t>{16, 32});
  const Tensor x = random_matrix(32, 32, 4, 1.0f, DType::f32), w = random_matrix(16, 32, 5, 0.3f, DType::f32);
  nn::Parameter weight;
  weight.variable = Variable(w);
  const Tensor y = plan.kernel->apply(Variable(x), weight, rows).value();
  const Tensor q = fake_quantize(w, format_of(IntMapping::ternary, 8), false).values;
  for (std::int64_t expert : {0, 1})
    EXPECT_EQ(floats(y.narrow(0, 16 * expert, 16)),
              product(x.narrow(0, 16 * expert, 16), q.narrow(0, 8 * expert, 8), false, true));
}

TEST(FewLevelLayers, AdaptersTakePartInTheLevels) {
  const LinearCase c = layer_case();
  const auto adapter = std::make_shared<nn::LowRankAdapter>(std::vector<nn::LowRankPiece>{{"q_proj", 0, 6, 0, 2, 0.5f}},
                                                            kInputs, nn::ParameterOptions{});
  std::uint64_t stream = 30;
  for (const nn::KernelParameter& own : adapter->parameters()) {
    Tensor value = own.parameter->variable.value();
    value.copy_from(random_matrix(value.size(0), value.size(1), ++stream, 0.3f, DType::f32));
  }
  const RecipeOptions options{.group_size = 8, .weight_grid = IntMapping::stretched};
  const auto kernel = testing::make_kernel("qat_intx_weight_only", c, {}, options)->with_adapter(adapter);
  nn::Parameter frozen;
  frozen.variable = Variable(c.w);
  const Tensor merged = c.w.clone();
  adapter->add_to(merged);
  EXPECT_EQ(floats(kernel->apply(Variable(c.x), frozen, {}).value()),
            product(c.x, fake_quantize(merged, format_of(IntMapping::stretched, 8), false).values, false, true));
}

}  // namespace
}  // namespace quench::recipes
