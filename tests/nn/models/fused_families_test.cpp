// GLM-4, Phi-3 and Qwen2-MoE: what they read, write and refuse of config.json, and the layers that follow.

#include <gmock/gmock.h>

#include <set>

#include "nn/attention/layer_rotations.h"
#include "nn/decoder/causal_lm.h"
#include "tests/nn/spec/config_testing.h"

namespace quench::nn {
namespace {

using testing::fault_of;
using ::testing::HasSubstr;
using testing::parsed;

Json fused(std::string_view type, std::string_view more = "{}") {
  Json json = Json::parse(R"({"vocab_size": 48, "hidden_size": 64, "intermediate_size": 24, "num_hidden_layers": 4,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64})");
  json.set("model_type", Json(type));
  const Json members = Json::parse(more);
  for (const auto& [key, value] : members.as_object()) json.set(key, value);
  return json;
}

constexpr const char* kLongrope = R"({"partial_rotary_factor": 0.25, "original_max_position_embeddings": 16,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2, 8.0]}})";

// Names of checkpoints, and the count of all elements.
std::pair<std::set<std::string>, std::int64_t> stored_names(const ModelConfig& config) {
  CausalLm model(config, {});
  std::set<std::string> names;
  std::int64_t elements = 0;
  for (const Parameter* parameter : model.parameters()) {
    elements += parameter->variable.value().numel();
    for (const ParameterPiece& piece : parameter->pieces) names.insert(piece.hf_name);
  }
  return {names, elements};
}

TEST(FusedFamilies, Glm4RotatesAPartInAdjacentPairs) {
  const ModelConfig config = parsed(fused("glm4"));
  const BlockSpec block = config.block(1);
  EXPECT_EQ(block.attention.rotary->dim, 8) << "half by default";
  EXPECT_TRUE(block.attention.rotary->interleaved);
  EXPECT_EQ(block.attention.post_norm->name, "post_self_attn_layernorm");
  EXPECT_EQ(block.feed_forward.norm.name, "post_attention_layernorm");
  EXPECT_EQ(block.feed_forward.post_norm->name, "post_mlp_layernorm");
  EXPECT_TRUE(block.attention.qkv_bias);
  EXPECT_FALSE(block.attention.output_bias);
  const auto [names, elements] = stored_names(config);
  EXPECT_TRUE(names.contains("model.layers.1.mlp.gate_up_proj.weight"));
  EXPECT_TRUE(names.contains("model.layers.1.self_attn.q_proj.bias"));
  EXPECT_EQ(elements, config.parameter_count());
  const Json written =
      to_hf_json(parsed(fused("glm4", R"({"rope_parameters": {"rope_theta": 5e4, "partial_rotary_factor": 1.0},
                                          "attention_bias": false})")),
                 DType::f32);
  EXPECT_EQ(written.at("partial_rotary_factor"), Json(1.0)) << "the default of older readers is 0.5";
  EXPECT_EQ(written.at("rope_parameters").at("partial_rotary_factor"), Json(1.0));
  EXPECT_EQ(parsed(written).block(0).attention.rotary->dim, 16);
  EXPECT_FALSE(parsed(written).qkv_bias);
}

TEST(FusedFamilies, PartialRotaryFactorMustRotateEvenWidths) {
  EXPECT_EQ(parsed(fused("phi3", R"({"partial_rotary_factor": 0.75})")).block(0).attention.rotary->dim, 12);
  EXPECT_EQ(parsed(fused("phi3", R"({"partial_rotary_factor": 0.5, "rope_parameters": {"partial_rotary_factor": 1}})"))
                .block(0)
                .attention.rotary->dim,
            16)
      << "the inner member applies, as in Transformers";
  EXPECT_THAT(fault_of(fused("phi3", R"({"partial_rotary_factor": 0.7})")),
              HasSubstr("partial_rotary_factor: 0.7 rotates 11 of 16 elements of a head; expected an even number"));
  EXPECT_THAT(fault_of(fused("glm4", R"({"partial_rotary_factor": 1.5})")), HasSubstr("rotates 24 of 16"));
  EXPECT_THAT(fault_of(fused("glm4", R"({"partial_rotary_factor": 0.05})")), HasSubstr("rotates 0 of 16"));
  EXPECT_THAT(fault_of(fused("llama", R"({"partial_rotary_factor": 0.5})")),
              HasSubstr("partial_rotary_factor: 0.5 is not supported: a rotation of a part of each head"));
}

TEST(FusedFamilies, Phi3HoldsFusedProjections) {
  const ModelConfig config = parsed(fused("phi3", R"({"sliding_window": 9})"));
  EXPECT_EQ(config.block(0).attention.window, 9);
  const auto [names, elements] = stored_names(config);
  EXPECT_TRUE(names.contains("model.layers.0.self_attn.qkv_proj.weight"));
  EXPECT_TRUE(names.contains("model.layers.3.mlp.gate_up_proj.weight"));
  EXPECT_FALSE(names.contains("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_EQ(elements, config.parameter_count());
  EXPECT_EQ(parsed(fused("phi3")).block(0).attention.window, 0);
}

TEST(FusedFamilies, LongropeByTheLengthOfTheSequences) {
  const ModelConfig config = parsed(fused("phi3", kLongrope));
  EXPECT_EQ(config.rope.type, RopeScaling::Type::longrope);
  EXPECT_DOUBLE_EQ(config.rope.factor, 4.0) << "max_position_embeddings over the original length";
  const RotarySpec rotary = config.block(0).attention.rotary.value();
  EXPECT_EQ(rotary.dim, 4);
  for (const auto& [length, expected] :
       {std::pair{std::int64_t{16}, std::vector<float>{1.0f, 0.01f / 1.5f}}, {17, {0.5f, 0.01f / 8}}}) {
    const std::vector<float> found = rope_inverse_frequencies(rotary, length);
    ASSERT_EQ(found.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(found[i], expected[i], 1e-7f) << length;
  }
  EXPECT_NEAR(rope_attention_factor(config.rope), std::sqrt(1 + std::log(4.0) / std::log(16.0)), 1e-12);
  EXPECT_TRUE(rotations_depend_on_length(config, 17));
  EXPECT_FALSE(rotations_depend_on_length(config, 16));
  EXPECT_TRUE(cached_keys_change(config, 16, 17));
  EXPECT_TRUE(cached_keys_change(config, 20, 3));
  EXPECT_FALSE(cached_keys_change(config, 17, 60));

  const Json written = to_hf_json(config, DType::f32);
  EXPECT_EQ(written.at("original_max_position_embeddings"), Json(16));
  EXPECT_EQ(written.at("rope_scaling").as_object().size(), 3u) << "Transformers 4 accepts three members";
  EXPECT_EQ(written.at("rope_parameters").at("long_factor"), Json(Json::Array{2.0, 8.0}));
  EXPECT_TRUE(parsed(written).rope == config.rope);
  Json old = fused("phi3", kLongrope);
  Json scaling = old.at("rope_scaling");
  scaling.set("attention_factor", 1.5);
  for (const char* name : {"su", "yarn"}) {
    scaling.set("type", name);
    old.set("rope_scaling", scaling);
    EXPECT_EQ(parsed(old).rope.type, RopeScaling::Type::longrope);
    EXPECT_DOUBLE_EQ(rope_attention_factor(parsed(old).rope), 1.5);
    EXPECT_TRUE(parsed(to_hf_json(parsed(old), DType::f32)).rope == parsed(old).rope);
  }
}

TEST(FusedFamilies, LongropeFaultsAreNamed) {
  const auto scaled = [](std::string_view scaling, std::string_view type = "phi3") {
    Json json = fused(type, R"({"original_max_position_embeddings": 16})");
    json.set("rope_scaling", Json::parse(scaling));
    return fault_of(json);
  };
  EXPECT_THAT(scaled(R"({"type": "longrope", "short_factor": [1, 1]})"),
              HasSubstr("short_factor: expected a list of 8 positive numbers, one a pair of rotated elements, got 2"));
  EXPECT_THAT(scaled(R"({"type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1]})"),
              HasSubstr("long_factor: expected a list of 8 positive numbers, one a pair of rotated elements, it is "
                        "missing"));
  EXPECT_THAT(scaled(R"({"type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 0], "long_factor": 3})"),
              ::testing::AllOf(HasSubstr("got 0"), HasSubstr("long_factor")));
  EXPECT_THAT(scaled(R"({"type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
                         "long_factor": [1, 1, 1, 1, 1, 1, 1, 1], "original_max_position_embeddings": 8})"),
              HasSubstr("original_max_position_embeddings: 8 contradicts 16"));
  EXPECT_THAT(scaled(R"({"type": "linear", "factor": 2.0})"),
              HasSubstr("Phi-3 has longrope (or its older names su and yarn) alone"));
  EXPECT_THAT(scaled(R"({"type": "su"})", "glm4"), HasSubstr("'su' is not supported; known: default, linear"));
}

TEST(FusedFamilies, Qwen2MoeHasASharedExpertUnderAGate) {
  const ModelConfig config =
      parsed(fused("qwen2_moe", R"({"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
                                    "shared_expert_intermediate_size": 20, "mlp_only_layers": [2]})"));
  EXPECT_EQ(testing::sparse_layers(config), (std::vector<bool>{true, true, false, true}));
  EXPECT_FALSE(config.experts.normalize);
  EXPECT_TRUE(config.qkv_bias);
  const auto [names, elements] = stored_names(config);
  for (const char* name : {"mlp.shared_expert_gate.weight", "mlp.shared_expert.up_proj.weight", "mlp.gate.weight",
                           "mlp.experts.3.down_proj.weight"})
    EXPECT_TRUE(names.contains(std::string("model.layers.0.") + name)) << name;
  EXPECT_TRUE(names.contains("model.layers.2.mlp.up_proj.weight"));
  EXPECT_FALSE(names.contains("model.layers.2.mlp.shared_expert_gate.weight"));
  EXPECT_EQ(elements, config.parameter_count());
  const ModelConfig again = parsed(to_hf_json(config, DType::f32));
  EXPECT_EQ(testing::sparse_layers(again), testing::sparse_layers(config));
  EXPECT_EQ(again.experts.shared_width, 20);
  const ModelConfig windowed =
      parsed(fused("qwen2_moe", R"({"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 3,
                                    "qkv_bias": false})"));
  EXPECT_FALSE(windowed.qkv_bias);
  std::vector<std::int64_t> windows;
  for (const BlockSpec& block : windowed.blocks) windows.push_back(block.attention.window);
  EXPECT_EQ(windows, (std::vector<std::int64_t>{9, 0, 9, 0})) << "every other layer, as Transformers' Qwen2MoeConfig";
  EXPECT_THAT(fault_of(fused("qwen2_moe", R"({"mlp_only_layers": [4]})")), HasSubstr("4 is no layer of this model"));
  EXPECT_THAT(fault_of(fused("qwen3", R"({"shared_expert_intermediate_size": 20})")),
              HasSubstr("shared_expert_intermediate_size: 20 is not supported: mixture-of-experts"));
}

}  // namespace
}  // namespace quench::nn
