// Adapters: the layers they choose, their gradients, and what merging makes of them.

#include "recipes/lora/adapters.h"

#include <gmock/gmock.h>

#include "autograd/gradcheck.h"
#include "nn/causal_lm.h"
#include "nn/initialize.h"
#include "recipes/lora/lora_linear.h"
#include "tests/recipes/float8_testing.h"
#include "tests/testing.h"

namespace quench::recipes {
namespace {

using autograd::Variable;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::random_matrix;

nn::ModelConfig small_model() {
  return nn::parse_model_config(Json::parse(R"({"model_type": "llama", "vocab_size": 48, "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2})"),
                                "config.json");
}

void fill(nn::Parameter& parameter, std::uint64_t stream, float scale) {
  Tensor value = parameter.variable.value();
  const Tensor numbers = random_matrix(value.size(0), value.size(1), stream, scale, DType::f32);
  cast({numbers, value});
  parameter.mark_changed();
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
              HasSubstr("lora.rank 64 exceeds model.layers.0.self_attn.q_proj [32, 32]"));
  EXPECT_THAT(message([&] { (void)lora_layers(model, {.rank = 4, .targets = {"lm_head"}}); }),
              HasSubstr("'lm_head' matches none of the layers that can have an adapter"));
}

TEST(LoraLayers, ExpertsAreRefusedByName) {
  nn::CausalLm model(nn::parse_model_config(Json::parse(R"({"model_type": "qwen3_moe", "vocab_size": 48,
      "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16})"),
                                            "config.json"),
                     {});
  EXPECT_THAT(
      message([&] {
        (void)lora_layers(model, {.rank = 4, .targets = {"q_proj", "down_proj"}});
      }),
      HasSubstr("'down_proj' names experts (model.layers.0.mlp.experts.down_proj), which cannot have an adapter"));
  EXPECT_EQ(lora_layers(model, {.rank = 4, .targets = {"q_proj", "v_proj"}}).size(), 4u);
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

std::shared_ptr<nn::LowRankAdapter> two_pieces(std::int64_t in) {
  std::vector<nn::LowRankPiece> pieces{{"q_proj", 0, 6, 0, 3, 0.5f}, {"v_proj", 9, 5, 0, 2, 2.0f}};
  return std::make_shared<nn::LowRankAdapter>(std::move(pieces), in, nn::ParameterOptions{});
}

TEST(LoraLinear, GradientsAreThoseOfDifferences) {
  for (const double dropout : {0.0, 0.5}) {
    const auto adapter = two_pieces(8);
    const LoraLinear kernel(nn::high_precision_linear_kernel(), adapter, {dropout, {.seed = 1, .stream = 2}});
    EXPECT_EQ(kernel.name(), "high precision + lora");
    nn::Parameter weight = nn::make_parameter({14, 8}, {});
    fill(weight, 9, 1.0f);
    const auto own = adapter->parameters();
    const auto function = [&](const std::vector<Variable>& in) {
      for (std::size_t i = 0; i < own.size(); ++i) own[i].parameter->variable = in[i + 1];
      weight.variable = in[4];
      // Draws are those of the pass; without a tape there would be none.
      autograd::Tape* tape = autograd::Tape::current();
      autograd::Tape other;
      std::optional<autograd::TapeScope> scope;
      if (tape == nullptr) scope.emplace(other);
      return kernel.apply(in[0], weight, {});
    };
    const auto matrix = [](std::int64_t r, std::int64_t c, std::uint64_t s) {
      return random_matrix(r, c, s, 1.0f, DType::f32);
    };
    const auto result = autograd::gradcheck(
        function, {matrix(7, 8, 1), matrix(5, 8, 2), matrix(6, 3, 3), matrix(5, 2, 4), matrix(14, 8, 5)});
    EXPECT_TRUE(result.ok) << result.failure;
    EXPECT_LT(result.worst, 1e-3);
  }
}

TEST(LoraLinear, MakesItsOutputAgainToTheSameBits) {
  const auto adapter = two_pieces(8);
  for (const nn::KernelParameter& own : adapter->parameters()) fill(*own.parameter, 11, 1.0f);
  const LoraLinear kernel(nn::high_precision_linear_kernel(), adapter, {0.3, {.seed = 1, .stream = 2}});
  nn::Parameter weight = nn::make_parameter({14, 8}, {});
  fill(weight, 9, 1.0f);
  const Variable x(random_matrix(7, 8, 1, 1.0f, DType::f32));
  autograd::Tape tape;
  const autograd::TapeScope scope(tape);
  tape.set_pass(77);
  const Tensor first = kernel.apply(x, weight, {}).value(), again = kernel.apply_again(x, weight, {});
  EXPECT_EQ(0, std::memcmp(first.raw_data(), again.raw_data(), first.nbytes()));
  tape.set_pass(78);
  const Tensor other = kernel.apply(x, weight, {}).value();
  EXPECT_NE(0, std::memcmp(first.raw_data(), other.raw_data(), first.nbytes()));
}

TEST(Adapters, MergedWeightsGiveTheSameOutputs) {
  nn::CausalLm model(small_model(), {});
  model.initialize(3);
  const LoraOptions options{.rank = 4, .alpha = 8, .targets = {"q_proj", "k_proj", "o_proj", "up_proj", "down_proj"}};
  const Adapters adapters(model, lora_layers(model, options), options, {});
  adapters.attach();
  std::uint64_t stream = 20;
  for (nn::Parameter* parameter : adapters.parameters()) fill(*parameter, ++stream, 0.1f);
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

}  // namespace
}  // namespace quench::recipes
