#include "nn/modules/mlp.h"

#include <gtest/gtest.h>

#include "autograd/gradcheck.h"
#include "tests/nn/modules/layer_reference.h"

namespace quench::nn {
namespace {

using reference::expect_near;
using reference::fill;
using reference::numbers;
using reference::rows_of;
using reference::small_config;

TEST(Mlp, IsTheFormula) {
  for (const char* more : {"{}", R"({"mlp_bias": true})"}) {
    SCOPED_TRACE(more);
    const ModelConfig config = small_config(more);
    Mlp layer(config, config.block(0), {});
    fill(layer);
    const Tensor x = numbers({7, config.hidden_size}, 1);
    expect_near(layer.forward(Variable(x), {}).value(), reference::mlp(layer, rows_of(x), ""), 1e-5);
  }
}

TEST(Mlp, HasTheGradientOfItsForwardPass) {
  const ModelConfig config = small_config();
  Mlp layer(config, config.block(0), {});
  fill(layer);
  const autograd::GradcheckResult result = autograd::gradcheck(
      [&](const auto& inputs) { return layer.forward(inputs[0], {}); }, {numbers({5, config.hidden_size}, 1)});
  EXPECT_TRUE(result.ok) << result.failure;
}

// Gradients are bit-identical for saved and recomputed activations.
TEST(Mlp, GradientsAreEqualAtEveryRecomputeLevel) {
  const ModelConfig config = small_config();
  std::vector<std::vector<float>> first;
  for (const int way : {0, 1, 2}) {
    Mlp layer(config, config.block(0), {});
    fill(layer);
    ForwardContext context;
    context.recompute = way == 0 ? autograd::Recompute::none : autograd::Recompute::selective;
    if (way == 2) context.activations = autograd::ActivationPolicy(1, 0, 1);
    const Variable x = Variable::leaf(numbers({5, config.hidden_size}, 1));
    autograd::Tape tape(context.recompute);
    Variable y;
    {
      const autograd::TapeScope scope(tape);
      y = layer.forward(x, context);
    }
    y.gradient()->contribute(numbers({5, config.hidden_size}, 2));
    tape.backward();
    std::vector<std::vector<float>> gradients;
    const auto keep = [&](const Tensor& t) { gradients.emplace_back(t.data<float>(), t.data<float>() + t.numel()); };
    keep(x.grad());
    for (const Parameter* p : layer.parameters()) keep(p->variable.grad());
    if (first.empty()) first = gradients;
    EXPECT_EQ(gradients, first) << way;
  }
}

}  // namespace
}  // namespace quench::nn
