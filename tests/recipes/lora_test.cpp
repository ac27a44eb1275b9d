// Adapters: the layers they choose, their gradients, and what merging makes of them.

#include "recipes/lora/adapters.h"

#include <gmock/gmock.h>

#include "autograd/functions.h"
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
              HasSubstr("lora.rank: 64 exceeds model.layers.0.self_attn.q_proj [32, 32]"));
  EXPECT_THAT(
      message([&] { (void)lora_layers(model, {.rank = 4, .targets = {"lm_head"}}); }),
      HasSubstr("'lm_head' matches none of the layers that can have an adapter: q_proj, k_proj, v_proj, o_proj, "
                "gate_proj, up_proj, down_proj"));
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

// Of 14 rows: all but three, or all.
std::shared_ptr<nn::LowRankAdapter> two_pieces(std::int64_t in, bool all = false, float second_scale = 2.0f) {
  std::vector<nn::LowRankPiece> pieces{{"q_proj", 0, all ? 9 : 6, 0, 3, 0.5f}, {"v_proj", 9, 5, 0, 2, second_scale}};
  return std::make_shared<nn::LowRankAdapter>(std::move(pieces), in, nn::ParameterOptions{});
}

TEST(LoraLinear, GradientsAreThoseOfDifferences) {
  for (const auto& [dropout, all] : {std::pair{0.0, false}, {0.5, false}, {0.0, true}, {0.5, true}}) {
    const auto adapter = two_pieces(8, all);
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
        function, {matrix(7, 8, 1), matrix(5, 8, 2), matrix(all ? 9 : 6, 3, 3), matrix(5, 2, 4), matrix(14, 8, 5)});
    EXPECT_TRUE(result.ok) << result.failure;
    EXPECT_LT(result.worst, 1e-3);
  }
}

// Scales that are equal, over a frozen weight: base and update are one product. The second use of x adds to its
// gradient.
TEST(LoraLinear, OneProductHasTheGradientsOfDifferences) {
  for (const bool all : {false, true}) {
    const auto adapter = two_pieces(8, all, 0.5f);
    const LoraLinear kernel(nn::high_precision_linear_kernel(), adapter, {});
    nn::Parameter weight = nn::make_parameter({14, 8}, {});
    fill(weight, 9, 1.0f);
    weight.variable = Variable(weight.variable.value());
    ASSERT_FALSE(weight.weight().requires_grad());
    const auto own = adapter->parameters();
    const auto matrix = [](std::int64_t r, std::int64_t c, std::uint64_t s) {
      return random_matrix(r, c, s, 1.0f, DType::f32);
    };
    const std::vector<Tensor> at{matrix(7, 8, 1), matrix(5, 8, 2), matrix(all ? 9 : 6, 3, 3), matrix(5, 2, 4)};
    const auto function = [&](const std::vector<Variable>& in) {
      for (std::size_t i = 0; i < own.size(); ++i) own[i].parameter->variable = in[i + 1];
      return autograd::add(kernel.apply(in[0], weight, {}), kernel.apply(in[0], weight, {}));
    };
    const auto result = autograd::gradcheck(function, at);
    EXPECT_TRUE(result.ok) << result.failure;
    EXPECT_LT(result.worst, 1e-3);
    // The same by a base that is not known to be a plain product, and made again.
    struct Other final : nn::LinearKernelWrapper {
      Other() : LinearKernelWrapper(nn::high_precision_linear_kernel()) {}
    };
    const Variable x(at[0]);
    const Tensor y = kernel.apply(x, weight, {}).value(), again = kernel.apply_again(x, weight, {});
    const Tensor apart = LoraLinear(std::make_shared<Other>(), adapter, {}).apply(x, weight, {}).value();
    EXPECT_EQ(0, std::memcmp(y.raw_data(), again.raw_data(), y.nbytes()));
    for (std::int64_t i = 0; i < y.numel(); ++i) EXPECT_NEAR(y.data<float>()[i], apart.data<float>()[i], 1e-5);
  }
}

// Behind SwiGLU the product writes the gradient of gate and up; where the value is made again, or read by two, SwiGLU
// does.
TEST(LoraLinear, OneProductHasTheGradientsOfGateAndUp) {
  const auto adapter = two_pieces(8, true, 0.5f);
  const LoraLinear kernel(nn::high_precision_linear_kernel(), adapter, {});
  nn::Parameter weight = nn::make_parameter({14, 8}, {});
  fill(weight, 9, 1.0f);
  weight.variable = Variable(weight.variable.value());
  const auto own = adapter->parameters();
  const auto matrix = [](std::int64_t r, std::int64_t c, std::uint64_t s) {
    return random_matrix(r, c, s, 1.0f, DType::f32);
  };
  const std::vector<Tensor> at{matrix(7, 16, 1), matrix(5, 8, 2), matrix(9, 3, 3), matrix(5, 2, 4)};
  for (const bool twice : {false, true})
    for (const autograd::Recompute recompute : {autograd::Recompute::none, autograd::Recompute::selective}) {
      const auto function = [&](const std::vector<Variable>& in) {
        for (std::size_t i = 0; i < own.size(); ++i) own[i].parameter->variable = in[i + 1];
        const Variable inner = autograd::swiglu(in[0]), y = kernel.apply(inner, weight, {});
        return twice ? autograd::add(y, kernel.apply(inner, weight, {})) : y;
      };
      const auto result = autograd::gradcheck(function, at, {.recompute = recompute});
      EXPECT_TRUE(result.ok) << result.failure;
      EXPECT_LT(result.worst, 1e-3);
    }
}

// By the definition: y = m / |W + s B A| (W x + s B A x) + bias, with the norm as a constant in the gradients.
TEST(LoraLinear, MagnitudesScaleTheMergedWeight) {
  const std::int64_t in = 8, out = 14, tokens = 7;
  const auto adapter = std::make_shared<nn::LowRankAdapter>(
      std::vector<nn::LowRankPiece>{{"q_proj", 0, 6, 0, 3, 0.5f}, {"v_proj", 9, 5, 0, 2, 2.0f}}, in,
      nn::ParameterOptions{}, true);
  const auto own = adapter->parameters();
  ASSERT_EQ(own.size(), 5u);
  EXPECT_EQ(own[3].pieces.front().hf_name, "q_proj.lora_magnitude_vector");
  nn::Parameter weight = nn::make_parameter({out, in}, {});
  weight.variable = Variable(random_matrix(out, in, 9, 1.0f, DType::f32));
  nn::Parameter bias = nn::make_parameter({out}, {});
  cast({random_matrix(1, out, 10, 1.0f, DType::f32).view({out}), bias.variable.value()});
  for (std::size_t i = 0; i < 3; ++i) fill(*own[i].parameter, 20 + i, 1.0f);
  const LoraLinear kernel(nn::high_precision_linear_kernel(), adapter, {});
  EXPECT_EQ(kernel.name(), "high precision + dora");
  const Tensor merged = weight.variable.value().clone();
  adapter->set_magnitudes(merged);
  const Tensor same = merged.clone();
  adapter->merge_into(same);
  adapter->add_to(merged);
  for (std::int64_t i = 0; i < out * in; ++i) EXPECT_NEAR(same.data<float>()[i], merged.data<float>()[i], 1e-5);
  for (const std::size_t i : {3, 4})
    for (std::int64_t j = 0; j < own[i].parameter->numel(); ++j)
      own[i].parameter->variable.value().data<float>()[j] *= 0.5f + 0.25f * static_cast<float>(j);

  const Tensor norms = adapter->norms(weight.variable.value());
  std::vector<float> factors(std::size_t(out), 1.0f);
  for (std::size_t i = 0; i < 2; ++i)
    for (std::int64_t j = 0; j < adapter->pieces()[i].rows; ++j) {
      const std::int64_t row = adapter->pieces()[i].row_begin + j;
      factors[std::size_t(row)] = own[3 + i].parameter->variable.value().data<float>()[j] / norms.data<float>()[row];
    }
  const Tensor x = random_matrix(tokens, in, 1, 1.0f, DType::f32), dy = random_matrix(tokens, out, 2, 1.0f, DType::f32);
  Variable input = Variable::leaf(x, DType::f32);
  autograd::Tape tape;
  Variable y;
  {
    const autograd::TapeScope scope(tape);
    y = kernel.apply(input, weight, bias.weight());
  }
  const Tensor again = kernel.apply_again(Variable(x), weight, bias.weight());
  y.gradient()->contribute(dy);
  tape.backward();
  std::vector<float> u(std::size_t(tokens * out)), dx(std::size_t(tokens * in));
  for (std::int64_t n = 0; n < tokens; ++n)
    for (std::int64_t row = 0; row < out; ++row) {
      float sum = 0;
      for (std::int64_t k = 0; k < in; ++k) {
        sum += x.data<float>()[n * in + k] * merged.data<float>()[row * in + k];
        dx[std::size_t(n * in + k)] +=
            dy.data<float>()[n * out + row] * factors[std::size_t(row)] * merged.data<float>()[row * in + k];
      }
      u[std::size_t(n * out + row)] = sum;
      const float expected = factors[std::size_t(row)] * sum + bias.variable.value().data<float>()[row];
      EXPECT_NEAR(y.value().data<float>()[n * out + row], expected, 1e-4);
      EXPECT_NEAR(again.data<float>()[n * out + row], expected, 1e-4);
    }
  for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(input.grad().data<float>()[i], dx[i], 1e-3);
  for (std::size_t i = 0; i < 2; ++i)
    for (std::int64_t j = 0; j < adapter->pieces()[i].rows; ++j) {
      const std::int64_t row = adapter->pieces()[i].row_begin + j;
      float sum = 0;
      for (std::int64_t n = 0; n < tokens; ++n) sum += dy.data<float>()[n * out + row] * u[std::size_t(n * out + row)];
      EXPECT_NEAR(own[3 + i].parameter->variable.grad().data<float>()[j], sum / norms.data<float>()[row], 1e-3);
    }
}

TEST(LoraExperts, GradientsAreThoseOfDifferences) {
  const std::int64_t experts = 3, in = 6;
  nn::ExpertLinear layer(experts, in, "mlp.experts", {{"gate_proj", 4}, {"up_proj", 4}}, {}, 0.1f);
  const auto adapter = std::make_shared<ExpertAdapter>(
      layer, std::vector<ExpertPiece>{{"gate_proj", 0, 4, 2, 0.5f}, {"up_proj", 4, 4, 3, 2.0f}},
      nn::ParameterOptions{});
  layer.set_kernel(std::make_shared<LoraExperts>(layer.shared_kernel(), adapter));
  const std::vector<std::int32_t> chosen{2, 0, 0, 2, 2};  // nobody goes to expert 1
  const autograd::ExpertRows rows = autograd::sort_rows(Tensor::from_values<std::int32_t>({5, 1}, chosen), experts, 1);
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

// Whoever adds first: a base that cannot add its product to the update has the update added to its output.
TEST(LoraLinear, TheOrderOfBaseAndUpdateDoesNotMatter) {
  struct Plain final : nn::LinearKernelWrapper {
    Plain() : LinearKernelWrapper(nn::high_precision_linear_kernel()) {}
  };
  EXPECT_FALSE(Plain().adds_onto());
  nn::Parameter weight = nn::make_parameter({14, 8}, {}), bias = nn::make_parameter({1, 14}, {});
  fill(weight, 9, 1.0f);
  fill(bias, 10, 1.0f);
  const Variable x(random_matrix(7, 8, 1, 1.0f, DType::f32));
  const nn::Weight of_bias(Variable(bias.variable.value().view({14})));
  EXPECT_THROW((void)Plain().apply_onto(x, weight, of_bias, Tensor::zeros({7, 14}, DType::f32)), Error);
  for (const bool all : {false, true}) {
    const auto adapter = two_pieces(8, all);
    for (const nn::KernelParameter& own : adapter->parameters()) fill(*own.parameter, 11, 1.0f);
    const LoraLinear first(nn::high_precision_linear_kernel(), adapter, {}),
        last(std::make_shared<Plain>(), adapter, {});
    const Tensor a = first.apply(x, weight, of_bias).value(), b = last.apply(x, weight, of_bias).value();
    for (std::int64_t i = 0; i < a.numel(); ++i) EXPECT_NEAR(a.data<float>()[i], b.data<float>()[i], 2e-6);
    EXPECT_EQ(all, std::memcmp(a.raw_data(), b.raw_data(), a.nbytes()) != 0) << "which sum came first";
  }
}

TEST(LoraLinear, MakesItsOutputAgainToTheSameBits) {
  for (const bool all : {false, true}) {
    const auto adapter = two_pieces(8, all);
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
}

// Rows without an adapter are copied, the others are the sum.
TEST(LowRankAdapter, TheSumInATensorOfItsOwnIsTheOneInPlace) {
  for (const bool all : {false, true}) {
    const auto adapter = two_pieces(8, all);
    for (const nn::KernelParameter& own : adapter->parameters()) fill(*own.parameter, 11, 1.0f);
    const Tensor weight = random_matrix(14, 8, 12, 1.0f, DType::f32), before = weight.clone();
    const Tensor sum = adapter->added_to(weight);
    EXPECT_EQ(0, std::memcmp(weight.raw_data(), before.raw_data(), weight.nbytes()));
    adapter->add_to(weight);
    EXPECT_EQ(0, std::memcmp(weight.raw_data(), sum.raw_data(), weight.nbytes()));
  }
}

void expect_same_when_merged(const nn::ModelConfig& config, const LoraOptions& options) {
  nn::CausalLm model(config, {});
  model.initialize(3);
  const Adapters adapters(model, lora_layers(model, options), options, {});
  adapters.attach();
  std::uint64_t stream = 20;
  for (nn::Parameter* parameter : adapters.parameters())
    if (parameter->global_shape.rank() == 2) fill(*parameter, ++stream, 0.1f);
  adapters.set_magnitudes();
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
