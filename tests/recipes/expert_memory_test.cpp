// Memory that expert layers keep for the backward pass: quantized values change no gradient, and take less.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/memory/allocator.h"
#include "nn/decoder/causal_lm.h"
#include "nn/experts/moe.h"
#include "recipes/convert.h"
#include "tests/core/ops/op_testing.h"

namespace quench::recipes {
namespace {

using autograd::Recompute;
using autograd::Tape;
using autograd::TapeScope;
using autograd::Variable;
using testing::Generator;
using testing::same_bits;

nn::ModelConfig model_of(int hidden, int width, int experts, int choices) {
  return nn::parse_model_config(
      Json::parse(fmt::format(
          R"({{"model_type": "qwen3_moe", "vocab_size": 48, "hidden_size": {}, "intermediate_size": 48,
        "moe_intermediate_size": {}, "num_experts": {}, "num_experts_per_tok": {}, "head_dim": 16,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}})",
          hidden, width, experts, choices)),
      "config.json");
}

class ExpertMemory : public ::testing::TestWithParam<const Recipe*> {};

// One layer forward and backward on the CPU; under selective recompute every operand is made of values again. Widths
// with whole blocks of MX, where SwiGLU rounds for the product after it, and without.
TEST_P(ExpertMemory, KeptCodesChangeNoGradient) {
  for (const nn::ModelConfig& config : {model_of(48, 40, 4, 2), model_of(64, 96, 4, 2)})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      std::vector<std::vector<Tensor>> gradients;
      for (const Recompute level : {Recompute::none, Recompute::selective, Recompute::full}) {
        nn::CausalLm model(config, {.dtype = dtype});
        model.initialize(5);
        (void)apply_recipe(model, *GetParam(), {{"*experts*"}, {}}, {});
        nn::ForwardContext context = model.make_context({{0, 64, 0, 64}}, 64);
        context.recompute = level;
        Generator random(3);
        Tape tape(level);
        Variable root;
        {
          const TapeScope scope(tape);
          root = model.loss(random.integers(64, 48), random.integers(64, 48), context, 1.0f / 64);
        }
        tape.backward(root);
        auto& all = gradients.emplace_back();
        for (const nn::Parameter* parameter : model.parameters()) all.push_back(parameter->variable.grad());
      }
      for (std::size_t level = 1; level < gradients.size(); ++level)
        for (std::size_t i = 0; i < gradients[0].size(); ++i)
          EXPECT_TRUE(same_bits(gradients[0][i], gradients[level][i])) << to_string(dtype) << " " << level << " " << i;
    }
}

// Bytes that a layer holds between its passes for two sequences of 8,192 tokens, apart from its input and output, which
// others hold too.
std::int64_t kept_bytes(const Recipe& recipe, const nn::ModelConfig& config) {
  constexpr Device kMeta{DeviceType::meta, 0};
  nn::MoE layer(config, config.block(0), {.dtype = DType::bf16, .grad_dtype = DType::bf16, .device = kMeta});
  (void)apply_recipe(layer, recipe, {}, {});
  const Variable x = Variable::leaf(Tensor::empty({2 * 8192, config.hidden_size}, DType::bf16, kMeta));
  nn::ForwardContext context;
  Tape tape;
  const TapeScope scope(tape);
  const std::int64_t before = Allocator::of(kMeta).stats().current;
  const Variable y = layer.forward(x, context);
  return Allocator::of(kMeta).stats().current - before - static_cast<std::int64_t>(y.value().nbytes());
}

// Narrow experts, those of Qwen3-30B-A3B: what SwiGLU reads stays in bf16, all else are codes or the tokens.
TEST_P(ExpertMemory, NarrowExpertsKeepLittleOfWhatBf16Keeps) {
  const nn::ModelConfig config = model_of(2048, 768, 128, 8);
  const auto ratio =
      static_cast<double>(kept_bytes(*GetParam(), config)) / static_cast<double>(kept_bytes(kBf16, config));
  RecordProperty("ratio", fmt::format("{:.3f}", ratio));
  EXPECT_LT(ratio, 0.6);
}

// Wide ones, those of Mixtral-8x7B: what SwiGLU reads, which its gradient needs in bf16, is 0.609 of what bf16 keeps;
// the rest is padding.
TEST_P(ExpertMemory, WideExpertsKeepLess) {
  const nn::ModelConfig config = model_of(4096, 14336, 8, 2);
  const auto ratio =
      static_cast<double>(kept_bytes(*GetParam(), config)) / static_cast<double>(kept_bytes(kBf16, config));
  RecordProperty("ratio", fmt::format("{:.3f}", ratio));
  EXPECT_LT(ratio, GetParam() == &kFloat8Blockwise ? 0.625 : 0.612);
}

INSTANTIATE_TEST_SUITE_P(Recipes, ExpertMemory, ::testing::Values(&kFloat8Rowwise, &kFloat8Blockwise, &kMxfp8),
                         [](const auto& recipe) { return std::string(recipe.param->name); });

}  // namespace
}  // namespace quench::recipes
