#include "nn/attention/attention.h"

#include <gtest/gtest.h>

#include "autograd/gradcheck.h"
#include "nn/attention/kv_cache.h"
#include "tests/nn/modules/layer_reference.h"

namespace quench::nn {
namespace {

using reference::expect_near;
using reference::fill;
using reference::make_context;
using reference::Matrix;
using reference::numbers;
using reference::rows_of;
using reference::small_config;

constexpr double kF32 = 1e-5;

Matrix exact(Attention& layer, const ModelConfig& config, const Tensor& x) {
  return reference::attention(layer, config, rows_of(x), "");
}

TEST(Attention, IsTheFormulaForEveryKindOfProjection) {
  for (const char* more : {"{}", R"({"attention_bias": true})", R"({"model_type": "qwen3"})",
                           R"({"model_type": "qwen2"})", R"({"model_type": "mistral", "sliding_window": 3})",
                           R"({"num_key_value_heads": 4})", R"({"rope_theta": 100.0})"}) {
    SCOPED_TRACE(more);
    const ModelConfig config = small_config(more);
    Attention layer(config, config.block(0), {});
    fill(layer);
    const Tensor x = numbers({9, config.hidden_size}, 1);
    expect_near(layer.forward(Variable(x), make_context(config, {9})).value(), exact(layer, config, x), kF32);
  }
}

TEST(Attention, SequencesDoNotSeeEachOther) {
  const ModelConfig config = small_config();
  Attention layer(config, config.block(0), {});
  fill(layer);
  const Tensor x = numbers({9, config.hidden_size}, 1);
  const Tensor y = layer.forward(Variable(x), make_context(config, {4, 5})).value();
  expect_near(y.narrow(0, 0, 4).clone(), exact(layer, config, x.narrow(0, 0, 4).clone()), kF32);
  expect_near(y.narrow(0, 4, 5).clone(), exact(layer, config, x.narrow(0, 4, 5).clone()), kF32);
}

// Token by token over a cache: what the whole sequence gives at once.
TEST(Attention, ACacheGivesTheSameTokens) {
  const ModelConfig config = small_config(R"({"model_type": "qwen3"})");
  Attention layer(config, config.block(0), {});
  fill(layer);
  const Tensor x = numbers({6, config.hidden_size}, 1);
  const Matrix whole = exact(layer, config, x);
  KvCache cache(config, 8, DType::f32, Device{});
  const ForwardContext all = make_context(config, {6});
  for (std::int64_t t = 0; t < 6; ++t) {
    ForwardContext context;
    context.rotations = all.rotations;
    context.positions = all.positions.narrow(0, t, 1);
    context.sequences = {{0, 1, 0, t + 1}};
    context.cache = &cache;
    const Tensor y = layer.forward(Variable(x.narrow(0, t, 1)), context).value();
    expect_near(y, {whole[static_cast<std::size_t>(t)]}, kF32);
  }
}

TEST(Attention, HasTheGradientOfItsForwardPass) {
  const ModelConfig config = small_config(R"({"model_type": "qwen3"})");
  Attention layer(config, config.block(0), {});
  fill(layer);
  const ForwardContext context = make_context(config, {3, 4});
  const autograd::GradcheckResult result = autograd::gradcheck(
      [&](const auto& inputs) { return layer.forward(inputs[0], context); }, {numbers({7, config.hidden_size}, 1)});
  EXPECT_TRUE(result.ok) << result.failure;
}

TEST(Attention, PiecesHaveCheckpointNamesAndRows) {
  const ModelConfig config = small_config(R"({"model_type": "qwen3"})");
  Attention layer(config, config.block(0), {});
  layer.assign_names("model.layers.1.self_attn.");
  std::vector<std::string> names;
  for (const Parameter* p : layer.parameters())
    for (const ParameterPiece& piece : p->pieces)
      names.push_back(piece.hf_name.substr(24) + " " + std::to_string(piece.rows));
  EXPECT_EQ(names, (std::vector<std::string>{".q_proj.weight 32", ".k_proj.weight 16", ".v_proj.weight 16",
                                             ".o_proj.weight 24", ".q_norm.weight 8", ".k_norm.weight 8"}));
}

}  // namespace
}  // namespace quench::nn
