// Guarantees of every recipe in the table, with its declared tolerances: one layer against f32, and a short training
// run against f32.

#include <gtest/gtest.h>

#include "autograd/functions.h"
#include "core/number/random.h"
#include "core/ops/elementwise.h"
#include "core/ops/global_norm.h"
#include "nn/decoder/causal_lm.h"
#include "nn/optim/adamw.h"
#include "recipes/convert.h"
#include "tests/autograd/borrowed_weight.h"
#include "tests/core/ops/op_testing.h"
#include "tests/recipes/recipe_testing.h"
#include "tests/seams/added_recipe.h"  // one more entry of the table
#include "tests/testing.h"

namespace quench::recipes {
namespace {

using autograd::Variable;
using testing::floats;

Tensor randn(const Shape& shape, std::uint64_t stream, float scale = 1.0f) {
  Tensor t = Tensor::empty(shape, DType::f32);
  for (std::int64_t i = 0; i < t.numel(); ++i)
    t.data<float>()[i] = scale * random_normal({5, stream, 0}, static_cast<std::uint64_t>(i));
  return t;
}

Tensor as(const Tensor& t, DType dtype) {
  Tensor copy = Tensor::empty(t.shape(), dtype);
  cast({t, copy});
  return copy;
}

struct LayerResult {
  Tensor y, dx, dw;
};

LayerResult run_layer(const nn::LinearKernel& kernel, const Tensor& x, const Tensor& w, const Tensor& dy) {
  const Variable in = Variable::leaf(x);
  nn::Parameter weight;
  weight.variable = Variable::leaf(w);
  autograd::Tape tape;
  Variable y;
  {
    const autograd::TapeScope scope(tape);
    y = kernel.apply(in, weight, {});
  }
  const Tensor value = y.value();
  y.gradient()->contribute(dy);
  tape.backward();
  return {as(value, DType::f32), as(in.grad(), DType::f32), as(weight.variable.grad(), DType::f32)};
}

class EveryRecipe : public ::testing::TestWithParam<std::size_t> {
 protected:
  [[nodiscard]] const Recipe& recipe() const { return recipe_table()[GetParam()]; }
};

TEST_P(EveryRecipe, LayerStaysWithinItsTolerances) {
  const Tensor x = as(randn({96, 64}, 1), DType::bf16), w = as(randn({80, 64}, 2, 0.1f), DType::bf16),
               dy = as(randn({96, 80}, 3), DType::bf16);
  const LinearPlan plan = recipe().plan({.name = "layer", .in_features = 64, .out_features = 80}, {});
  ASSERT_NE(plan.kernel, nullptr) << plan.skipped_because;
  const LayerResult ours = run_layer(*plan.kernel, x, w, dy);
  const LayerResult exact =
      run_layer(*nn::high_precision_linear_kernel(), as(x, DType::f32), as(w, DType::f32), as(dy, DType::f32));
  EXPECT_LT(testing::distance(ours.y, exact.y), recipe().tolerances.output_relative_l2);
  EXPECT_LT(testing::distance(ours.dx, exact.dx), recipe().tolerances.gradient_relative_l2);
  EXPECT_LT(testing::distance(ours.dw, exact.dw), recipe().tolerances.gradient_relative_l2);
}

// Mean loss of the last ten of sixty steps of a small model, each step on fresh text of a noisy Markov chain.
double train(const Recipe& recipe, DType dtype) {
  const nn::ModelConfig config = nn::parse_model_config(
      Json::parse(R"({"model_type": "llama", "vocab_size": 64, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2})"),
      "config.json");
  nn::CausalLm model(config, {.dtype = dtype});
  model.initialize(3);
  (void)apply_recipe(model, recipe, {{}, {"lm_head"}});
  nn::AdamW optimizer(model.parameters(), {.master_weights = true});
  constexpr std::int64_t kTokens = 128;
  const nn::ForwardContext context = model.make_context({{0, 64, 0, 64}, {64, 64, 64, 64}}, kTokens);
  const Tensor square = Tensor::empty({1}, DType::f64), norm = Tensor::empty({1}, DType::f32),
               scale = Tensor::empty({1}, DType::f32);
  double loss = 0;
  for (std::int64_t step = 1; step <= 60; ++step) {
    std::vector<std::int32_t> stream{1};
    const RandomKey key{9, 0, static_cast<std::uint64_t>(step)};
    for (std::uint64_t i = 0; i < kTokens; ++i)
      stream.push_back(static_cast<std::int32_t>(random_below(key, 2 * i, 100) < 35
                                                     ? random_below(key, 2 * i + 1, 64)
                                                     : static_cast<std::uint64_t>(stream.back() * 5 + 3) % 64));
    const Tensor ids =
        Tensor::from_values<std::int32_t>({kTokens}, std::span<const std::int32_t>(stream).first(kTokens));
    const Tensor labels =
        Tensor::from_values<std::int32_t>({kTokens}, std::span<const std::int32_t>(stream).last(kTokens));
    autograd::Tape tape;
    Variable root;
    {
      const autograd::TapeScope scope(tape);
      root = model.loss(ids, labels, context, 1.0f / kTokens);
    }
    tape.backward(root);
    if (step > 50) loss += static_cast<double>(*root.value().data<float>()) / 10;
    optimizer.squared_grad_norm(square);
    clip_scale({.squared_norm = square, .max_norm = 1.0f, .norm = norm, .scale = scale});
    optimizer.step(2e-3, step, scale);
    optimizer.zero_grad();
  }
  return loss;
}

TEST_P(EveryRecipe, LossCurveFollowsF32) {
  const double exact = train(kBf16, DType::f32), ours = train(recipe(), DType::bf16);
  EXPECT_LT(exact, 3.8) << "ln 64 = 4.16 at the start: the reference must have learned something";
  EXPECT_NEAR(ours / exact, 1.0, recipe().tolerances.loss_relative);
}

// Loss and gradients of one pass with every weight there only while it is used, and with all of them in place.
TEST_P(EveryRecipe, NoLayerKeepsTheBytesOfAWeight) {
  const nn::ModelConfig config = nn::parse_model_config(
      Json::parse(
          R"({"model_type": "qwen3", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 48, "head_dim": 16,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2})"),
      "config.json");
  using autograd::Recompute;
  for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full}) {
    SCOPED_TRACE(static_cast<int>(mode));
    std::vector<std::vector<float>> results[2];
    for (const bool elsewhere : {false, true}) {
      nn::CausalLm model(config, {.dtype = DType::bf16});
      model.initialize(3);
      (void)apply_recipe(model, recipe(), {});
      for (nn::Parameter* parameter : model.parameters())
        if (elsewhere) parameter->whole = testing::borrowed(parameter->variable);
      nn::ForwardContext context = model.make_context({{0, 32, 0, 32}}, 32);
      context.recompute = mode;
      std::vector<std::int32_t> stream;
      for (int i = 0; i < 33; ++i) stream.push_back(i * i % 48);
      const std::span<const std::int32_t> all = stream, first = all.first(32), last = all.last(32);
      autograd::Tape tape(mode);
      Variable root;
      {
        const autograd::TapeScope scope(tape);
        root = model.loss(Tensor::from_values<std::int32_t>({32}, first), Tensor::from_values<std::int32_t>({32}, last),
                          context, 1.0f / 32);
      }
      tape.backward(root);
      auto& result = results[elsewhere];
      result.push_back(floats(root.value()));
      for (const nn::Parameter* parameter : model.parameters()) result.push_back(floats(parameter->variable.grad()));
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_TRUE(std::isfinite(results[1][0][0]));
  }
}

INSTANTIATE_TEST_SUITE_P(Table, EveryRecipe, ::testing::Range<std::size_t>(0, recipe_table().size()),
                         [](const auto& entry) { return std::string(recipe_table()[entry.param].name); });

}  // namespace
}  // namespace quench::recipes
