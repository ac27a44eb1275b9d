// OLMo 2, SmolLM3 and Granite: what they read, write and refuse of config.json, and the layers that follow.

#include <gmock/gmock.h>

#include "nn/decoder/causal_lm.h"
#include "tests/nn/spec/config_testing.h"

namespace quench::nn {
namespace {

using ::testing::HasSubstr;

Json dense(std::string_view type, std::string_view more = "{}") {
  Json json = Json::parse(R"({"vocab_size": 48, "hidden_size": 64, "intermediate_size": 24, "num_hidden_layers": 6,
      "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64})");
  json.set("model_type", Json(type));
  const Json members = Json::parse(more);
  for (const auto& [key, value] : members.as_object()) json.set(key, value);
  return json;
}

std::string dense_fault(const Json& json) {
  try {
    (void)parse_model_config(json, "config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

ModelConfig written_again(const ModelConfig& config) {
  return parse_model_config(to_hf_json(config, DType::f32), "again");
}

std::vector<int> rotated(const ModelConfig& config) {
  std::vector<int> layers;
  for (const BlockSpec& block : config.blocks) layers.push_back(block.attention.rotary ? 1 : 0);
  return layers;
}

std::vector<std::int64_t> windows_of(const ModelConfig& config) {
  std::vector<std::int64_t> all;
  for (const BlockSpec& block : config.blocks) all.push_back(block.attention.window);
  return all;
}

TEST(DenseFamilies, AbsentSizesGetTransformersDefaults) {
  const ModelConfig olmo = parse_model_config(Json::parse(R"({"model_type": "olmo2"})"), "a");
  EXPECT_EQ(olmo.vocab_size, 50304);
  EXPECT_EQ(olmo.num_key_value_heads, 32);
  EXPECT_EQ(olmo.head_dim, 128);
  EXPECT_FALSE(olmo.tie_word_embeddings);
  const ModelConfig smol = parse_model_config(Json::parse(R"({"model_type": "smollm3"})"), "a");
  EXPECT_EQ(smol.num_hidden_layers, 36);
  EXPECT_EQ(smol.num_key_value_heads, 4);
  EXPECT_TRUE(smol.tie_word_embeddings);
  EXPECT_EQ(smol.parameter_count(), 3075098624);
  const ModelConfig granite = parse_model_config(Json::parse(R"({"model_type": "granite"})"), "a");
  EXPECT_EQ(granite.intermediate_size, 11008);
  EXPECT_DOUBLE_EQ(granite.block(0).attention.scale, 1.0) << "not 1 / sqrt(head_dim)";
}

TEST(DenseFamilies, Olmo2NormsOutputsAndAllHeads) {
  const ModelConfig config = parse_model_config(dense("olmo2", R"({"attention_bias": true})"), "a");
  const BlockSpec block = config.block(1);
  EXPECT_EQ(block.attention.norm.name, "");
  EXPECT_EQ(block.attention.post_norm->name, "post_attention_layernorm");
  EXPECT_EQ(block.feed_forward.norm.name, "");
  EXPECT_EQ(block.feed_forward.post_norm->name, "post_feedforward_layernorm");
  EXPECT_EQ(block.attention.qk_norm, QkNorm::all_heads);
  EXPECT_TRUE(block.attention.qk_form.f32_weight && config.stream.norm.form.f32_weight);
  EXPECT_TRUE(written_again(config).output_bias);
  CausalLm model(config, {});
  std::int64_t elements = 0;
  for (const Parameter* parameter : model.parameters()) {
    elements += parameter->variable.value().numel();
    EXPECT_EQ(parameter->name.find("input_layernorm"), std::string::npos);
    if (parameter->name.ends_with("q_norm.weight")) {
      EXPECT_EQ(parameter->variable.value().numel(), 64);
    }
    if (parameter->name.ends_with("k_norm.weight")) {
      EXPECT_EQ(parameter->variable.value().numel(), 32);
    }
  }
  EXPECT_EQ(elements, config.parameter_count());
}

TEST(DenseFamilies, SmolLm3LeavesRotationsOut) {
  EXPECT_EQ(rotated(parse_model_config(dense("smollm3"), "a")), (std::vector<int>{1, 1, 1, 0, 1, 1}));
  EXPECT_EQ(rotated(parse_model_config(dense("smollm3", R"({"no_rope_layer_interval": 2})"), "a")),
            (std::vector<int>{1, 0, 1, 0, 1, 0}));
  const ModelConfig config = parse_model_config(
      dense("smollm3", R"({"no_rope_layers": [0, 1, 1, 1, 1, 0], "use_sliding_window": true, "sliding_window": 9})"),
      "a");
  EXPECT_EQ(rotated(config), (std::vector<int>{0, 1, 1, 1, 1, 0}));
  EXPECT_EQ(windows_of(config), (std::vector<std::int64_t>{9, 0, 0, 0, 0, 9})) << "layers without RoPE";
  EXPECT_EQ(rotated(written_again(config)), rotated(config));
  EXPECT_EQ(windows_of(written_again(config)), windows_of(config));
  EXPECT_EQ(windows_of(parse_model_config(dense("smollm3", R"({"sliding_window": 9})"), "a")),
            std::vector<std::int64_t>(6, 0));
}

TEST(DenseFamilies, GraniteScales) {
  const ModelConfig config = parse_model_config(
      dense("granite", R"({"embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.015625,
          "logits_scaling": 6})"),
      "a");
  EXPECT_DOUBLE_EQ(config.block(0).attention.scale, 0.015625);
  EXPECT_DOUBLE_EQ(config.block(0).residual_multiplier, 0.22);
  EXPECT_DOUBLE_EQ(config.stream.embedding_scale, 12.0);
  EXPECT_FALSE(config.stream.embedding_scale_rounded);
  EXPECT_DOUBLE_EQ(config.stream.logits_scale, 1.0 / 6);
  const Json written = to_hf_json(config, DType::f32);
  EXPECT_DOUBLE_EQ(written.find("logits_scaling")->as_double(), 6.0);
  EXPECT_DOUBLE_EQ(written.find("residual_multiplier")->as_double(), 0.22);
  EXPECT_DOUBLE_EQ(written.find("embedding_multiplier")->as_double(), 12.0);
  EXPECT_DOUBLE_EQ(written.find("attention_multiplier")->as_double(), 0.015625);
}

TEST(DenseFamilies, RefuseWhatTheyDoNotExecute) {
  EXPECT_THAT(dense_fault(dense("olmo2", R"({"sliding_window": 9})")), HasSubstr("sliding_window: 9 is not supported"));
  EXPECT_THAT(dense_fault(dense("olmo2", R"({"clip_qkv": null, "logits_scaling": 2})")),
              HasSubstr("logits_scaling: 2 is not supported: scale factors"));
  EXPECT_THAT(dense_fault(dense("llama", R"({"no_rope_layers": [1, 0, 1, 1, 1, 1]})")), HasSubstr("no_rope_layers"));
  EXPECT_THAT(dense_fault(dense("smollm3", R"({"no_rope_layers": [1, 0]})")),
              HasSubstr("no_rope_layers: expected a list of 6 numbers"));
  EXPECT_THAT(dense_fault(dense("smollm3", R"({"no_rope_layers": [1, 0, 2, 1, 1, 1]})")),
              HasSubstr("2 of layer 2 is neither 0 nor 1"));
  EXPECT_THAT(dense_fault(dense("smollm3", R"({"layer_types": ["full_attention", "full_attention", "full_attention",
                  "full_attention", "full_attention", "sliding_attention"]})")),
              HasSubstr("layer 5 is of type sliding_attention, which needs use_sliding_window: true"));
  EXPECT_THAT(dense_fault(dense("granite", R"({"residual_multiplier": 0})")),
              HasSubstr("residual_multiplier: 0 is not a positive number"));
  EXPECT_THAT(dense_fault(dense("granite", R"({"final_logit_softcapping": 30})")), HasSubstr("soft caps"));
}

}  // namespace
}  // namespace quench::nn
