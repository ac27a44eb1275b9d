// Adapters: the layers they choose, their gradients, and what merging makes of them.

#include "recipes/lora/adapters.h"

#include <gmock/gmock.h>

#include "autograd/functions.h"
#include "autograd/gradcheck.h"
#include "nn/decoder/causal_lm.h"
#include "nn/modules/initialize.h"
#include "recipes/lora/lora_linear.h"
#include "tests/recipes/lora_testing.h"
#include "tests/testing.h"

namespace quench::recipes {
namespace {

using autograd::Variable;
using ::testing::ElementsAre;
using testing::fill;
using ::testing::HasSubstr;
using testing::random_matrix;

nn::ModelConfig small_model() {
  return nn::parse_model_config(Json::parse(R"({"model_type": "llama", "vocab_size": 48, "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2})"),
                                "config.json");
}

std::string message(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(LoraLayers, PatternsNameEndsOfNamesAndGlobs) {
  EXPECT_TRUE(lora_pattern_matches("q_proj", "model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(lora_pattern_matches("layers.0.self_attn.q_proj", "model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(lora_pattern_matches("*.layers.1?.*", "model.layers.12.mlp.up_proj"));
  EXPECT_FALSE(lora_pattern_matches("proj", "model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(lora_pattern_matches("attn.q_proj", "model.layers.0.self_attn.q_proj"));
}

TEST(LoraLayers, OptionsChooseLayersRanksAndScales) {
  nn::CausalLm model(small_model(), {});
  LoraOptions options{.rank = 4, .alpha = 8, .targets = {"v_proj", "layers.1.mlp.down_proj"}};
  options.rank_pattern = {{"down_proj", 16}};
  options.alpha_pattern = {{"*.0.*", 2}};
  std::vector<std::string> chosen;
  for (const LoraLayer& layer : lora_layers(model, options))
    chosen.push_back(fmt::format("{} {} {}", layer.name, layer.rank, layer.scale));
  EXPECT_THAT(chosen, ElementsAre("model.layers.0.self_attn.v_proj 4 0.5", "model.layers.1.self_attn.v_proj 4 2",
                                  "model.layers.1.mlp.down_proj 16 0.5"));
  options.rslora = true;
  EXPECT_EQ(lora_layers(model, options)[2].scale, 2.0);
  options.targets.push_back("w1");
  EXPECT_THAT(message([&] { (void)lora_layers(model, options); }), HasSubstr("lora.targets: 'w1' matches none"));
  options.targets = {"v_proj"};
  EXPECT_THAT(message([&] { (void)lora_layers(model, options); }),
              HasSubstr("lora.rank_pattern: 'down_proj' matches none"));
  EXPECT_THAT(message([&] { (void)lora_layers(model, {.rank = 64, .targets = {"q_proj"}}); }),
              HasSubstr("lora.rank: 64 exceeds model.layers.0.self_attn.q_proj [32, 32]"));
  EXPECT_THAT(
      message([&] { (void)lora_layers(model, {.rank = 4, .targets = {"lm_head"}}); }),
      HasSubstr("'lm_head' matches none of the layers that can have an adapter: q_proj, k_proj, v_proj, o_proj, "
                "gate_proj, up_proj, down_proj"));
}

// As PEFT's get_pattern_key; a pattern in the shadow of earlier ones is no mistake.
TEST(LoraLayers, TheFirstPatternThatMatchesApplies) {
  nn::CausalLm model(small_model(), {});
  LoraOptions options{.rank = 4, .alpha = 8, .targets = {"q_proj"}};
  const auto first = [&] { return lora_layers(model, options).front(); };
  options.rank_pattern = {{"q_proj", 8}, {"*.layers.0.*", 2}};
  options.alpha_pattern = {{"q_proj", 32}, {"*.layers.0.*", 1}};
  EXPECT_EQ(first().rank, 8);
  EXPECT_EQ(first().scale, 4.0);
  std::ranges::reverse(options.rank_pattern);
  std::ranges::reverse(options.alpha_pattern);
  EXPECT_EQ(first().rank, 2);
  EXPECT_EQ(first().scale, 0.5);
  options.rank_pattern = {{"self_attn.q_proj", 6}, {"q_proj", 3}};
  EXPECT_EQ(first().rank, 6);
}

nn::ModelConfig small_experts() {
  return nn::parse_model_config(Json::parse(R"({"model_type": "qwen3_moe", "vocab_size": 48,
      "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16})"),
                                "config.json");
}

TEST(LoraLayers, ExpertsHaveAdaptersOfTheirOwn) {
  nn::CausalLm model(small_experts(), {});
  const auto layers = lora_layers(model, {.rank = 4, .targets = {"q_proj", "down_proj"}});
  EXPECT_EQ(layers.size(), 2u + 2 * 4);
  EXPECT_EQ(layers.back().name, "model.layers.1.mlp.experts.3.down_proj");
  const auto refusal = [&](const LoraOptions& options) {
    return message([&] { (void)Adapters(model, lora_layers(model, options), options, {}); });
  };
  EXPECT_THAT(refusal({.rank = 4, .targets = {"experts.1.down_proj"}}), HasSubstr("all have one, or none"));
  EXPECT_THAT(refusal({.rank = 4, .targets = {"down_proj"}, .rank_pattern = {{"experts.1.down_proj", 2}}}),
              HasSubstr("the experts of a layer share them"));
  EXPECT_THAT(refusal({.rank = 4, .dropout = 0.1, .targets = {"up_proj"}}), HasSubstr("lora.dropout: 0.1"));
  EXPECT_THAT(refusal({.rank = 4, .targets = {"up_proj"}, .dora = true}), HasSubstr("DoRA has no magnitudes"));
}

TEST(Adapters, ParametersHavePeftNamesAndBeginAsNothing) {
  nn::CausalLm model(small_model(), {});
  model.initialize(3);
  const LoraOptions options{.rank = 4, .alpha = 8, .targets = {"q_proj", "v_proj"}};
  const Adapters adapters(model, lora_layers(model, options), options, {});
  freeze_base(model);
  adapters.attach();
  std::vector<std::string> names, pieces;
  for (nn::Parameter* parameter : model.parameters()) {
    EXPECT_EQ(parameter->variable.requires_grad(), parameter->adapter) << parameter->name;
    EXPECT_EQ(parameter->in_checkpoints, parameter->adapter) << parameter->name;
    if (!parameter->adapter || !parameter->name.starts_with("model.layers.0")) continue;
    names.push_back(parameter->name);
    for (const nn::ParameterPiece& piece : parameter->pieces) pieces.push_back(piece.hf_name);
    nn::initialize_parameter(*parameter, 3);
    double most = 0;
    for (std::int64_t i = 0; i < parameter->numel(); ++i)
      most = std::max(most, std::abs(double(parameter->variable.value().data<float>()[i])));
    if (parameter->name.ends_with("lora_A.weight"))
      EXPECT_TRUE(most > 0.9 / std::sqrt(32.0) && most <= 1 / std::sqrt(32.0)) << most;
    else
      EXPECT_EQ(most, 0.0);
  }
  const std::string layer = "model.layers.0.self_attn.";
  EXPECT_THAT(names, ElementsAre(layer + "qkv_proj.lora_A.weight", layer + "qkv_proj.lora_B.q_proj.weight",
                                 layer + "qkv_proj.lora_B.v_proj.weight"));
  EXPECT_THAT(pieces, ElementsAre(layer + "q_proj.lora_A.weight", layer + "v_proj.lora_A.weight",
                                  layer + "q_proj.lora_B.weight", layer + "v_proj.lora_B.weight"));
  EXPECT_EQ(adapters.parameter_count(), 2 * (8 * 32 + 4 * 32 + 4 * 16));
  const std::size_t with = model.parameters().size();
  adapters.detach();
  EXPECT_EQ(model.parameters().size(), with - 6);
}

TEST(LoraExperts, GradientsMatchFiniteDifferences) {
  const std::int64_t experts = 3, in = 6;
  nn::ExpertLinear layer(experts, in, "mlp.experts", {.init_std = 0.1f, .parts = {{"gate_proj", 4}, {"up_proj", 4}}});
  const auto adapter = std::make_shared<ExpertAdapter>(
      layer, std::vector<ExpertPiece>{{"gate_proj", 0, 4, 2, 0.5f}, {"up_proj", 4, 4, 3, 2.0f}},
      nn::ParameterOptions{});
  layer.set_kernel(std::make_shared<LoraExperts>(layer.shared_kernel(), adapter));
  const std::vector<std::int32_t> chosen{2, 0, 0, 2, 2};  // expert 1 has no tokens
  const autograd::TokenPermutation rows =
      autograd::sort_tokens(Tensor::from_values<std::int32_t>({5, 1}, chosen), experts, 1);
  const auto own = adapter->parameters();
  EXPECT_EQ(own[3].pieces[2].hf_name, "mlp.experts.2.up_proj.lora_B.weight");
  const auto matrix = [](std::int64_t r, std::int64_t c, std::uint64_t s) {
    return random_matrix(r, c, s, 1.0f, DType::f32);
  };
  const std::vector<Tensor> at{matrix(5, in, 1),           matrix(experts * 2, in, 2), matrix(experts * 4, 2, 3),
                               matrix(experts * 3, in, 4), matrix(experts * 4, 3, 5),  matrix(experts * 8, in, 6)};
  const auto set = [&](const std::vector<Variable>& values) {
    for (std::size_t i = 0; i < own.size(); ++i) own[i].parameter->variable = values[i + 1];
    layer.weight().variable = values[5];
  };
  for (const bool tokens : {false, true}) {
    const auto function = [&](const std::vector<Variable>& values) {
      set(values);
      return tokens ? layer.forward_tokens(values[0], rows) : layer.forward(values[0], rows);
    };
    const auto result = autograd::gradcheck(function, at);
    EXPECT_TRUE(result.ok) << result.failure;
    EXPECT_LT(result.worst, 1e-3);
  }
  // Merged, it is the same.
  set({at.begin(), at.end()});
  const Variable x(at[0]);
  const autograd::NoGrad no_grad;
  const Tensor beside = layer.forward(x, rows).value();
  Tensor merged = layer.weight().variable.value().clone();
  adapter->add_to(merged);
  layer.weight().variable = Variable(merged);
  layer.set_kernel(nn::high_precision_expert_kernel());
  const Tensor alone = layer.forward(x, rows).value();
  for (std::int64_t i = 0; i < alone.numel(); ++i) EXPECT_NEAR(alone.data<float>()[i], beside.data<float>()[i], 1e-4);
}

void expect_same_when_merged(const nn::ModelConfig& config, const LoraOptions& options) {
  nn::CausalLm model(config, {});
  model.initialize(3);
  const Adapters adapters(model, lora_layers(model, options), options, {});
  adapters.attach();
  std::uint64_t stream = 20;
  for (nn::Parameter* parameter : adapters.parameters())
    if (parameter->global_shape.rank() == 2) fill(*parameter, ++stream, 0.1f);
  adapters.begin_from_base();
  for (nn::Parameter* parameter : adapters.parameters())
    if (parameter->global_shape.rank() == 1) scale({parameter->variable.value(), 1.25f});
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 16; ++i) tokens.push_back(i * 7 % 48);
  const Tensor ids = Tensor::from_values<std::int32_t>({16}, tokens);
  const autograd::NoGrad no_grad;
  const auto logits = [&] { return model.logits(model.hidden(ids, model.make_context({{0, 16, 0, 16}}, 16))); };
  const Tensor beside = logits();
  adapters.merge();
  const Tensor merged = logits();
  for (const nn::Parameter* parameter : model.parameters()) EXPECT_FALSE(parameter->adapter);
  const auto span = [](const Tensor& t) { return std::span<const float>(t.data<float>(), std::size_t(t.numel())); };
  EXPECT_LT(testing::relative_l2(span(merged), span(beside)), 1e-5);
}

TEST(Adapters, MergedWeightsGiveTheSameOutputs) {
  LoraOptions options{.rank = 4, .alpha = 8, .targets = {"q_proj", "k_proj", "o_proj", "up_proj", "down_proj"}};
  expect_same_when_merged(small_model(), options);
  expect_same_when_merged(small_experts(), options);
  options.dora = true;
  expect_same_when_merged(small_model(), options);
}

}  // namespace
}  // namespace quench::recipes
