#include <gmock/gmock.h>

#include "nn/decoder/causal_lm.h"
#include "tests/nn/spec/config_testing.h"

namespace quench::nn {
namespace {

using ::testing::HasSubstr;

Json gemma(std::string_view type, std::string_view more = "{}") {
  Json json = Json::parse(R"({"vocab_size": 48, "hidden_size": 64, "intermediate_size": 24, "num_hidden_layers": 7,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64})");
  json.set("model_type", Json(type));
  const Json members = Json::parse(more);
  for (const auto& [key, value] : members.as_object()) json.set(key, value);
  return json;
}

std::string fault(const Json& json) {
  try {
    (void)parse_model_config(json, "config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::int64_t> windows(const ModelConfig& config) {
  std::vector<std::int64_t> all;
  for (const BlockSpec& block : config.blocks) all.push_back(block.attention.window);
  return all;
}

// As the text_config of a published multimodal folder: what it lacks are the defaults of Gemma3TextConfig.
TEST(GemmaConfig, AbsentSizesGetTransformersDefaults) {
  const ModelConfig c = parse_model_config(
      Json::parse(R"({"architectures": ["Gemma3ForCausalLM"], "hidden_size": 2560, "intermediate_size": 10240,
          "model_type": "gemma3_text", "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
          "sliding_window": 1024})"),
      "a");
  EXPECT_EQ(c.vocab_size, 262208);
  EXPECT_EQ(c.num_attention_heads, 8);
  EXPECT_EQ(c.num_key_value_heads, 4);
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_EQ(c.rope.type, RopeScaling::Type::linear);
  EXPECT_DOUBLE_EQ(c.rope.theta, 1e6);
  ASSERT_TRUE(c.local_rope);
  EXPECT_EQ(*c.local_rope, RopeScaling{});
  EXPECT_EQ(c.block(4).attention.window, 1024);
  EXPECT_EQ(c.block(5).attention.window, 0);
  EXPECT_EQ(c.block(4).attention.rotary->scaling, *c.local_rope);
  EXPECT_EQ(c.block(5).attention.rotary->scaling, c.rope);
  EXPECT_DOUBLE_EQ(c.block(0).attention.scale, 1.0 / 16);
  EXPECT_THAT(fault(Json::parse(R"({"model_type": "llama"})")), HasSubstr("vocab_size: is missing"));
}

TEST(GemmaConfig, LayersAsGemma2AndGemma3) {
  const ModelConfig second = parse_model_config(gemma("gemma2", R"({"sliding_window": 9})"), "a");
  EXPECT_EQ(windows(second), (std::vector<std::int64_t>{9, 0, 9, 0, 9, 0, 9}));
  const BlockSpec block = second.block(1);
  EXPECT_DOUBLE_EQ(block.attention.soft_cap, 50.0);
  EXPECT_EQ(block.attention.qk_norm, QkNorm::none);
  EXPECT_EQ(block.attention.post_norm->name, "post_attention_layernorm");
  EXPECT_EQ(block.feed_forward.norm.name, "pre_feedforward_layernorm");
  EXPECT_EQ(block.feed_forward.activation, GatedActivation::gelu_tanh);
  EXPECT_FLOAT_EQ(block.feed_forward.norm.form.weight_offset, 1.0f);
  EXPECT_DOUBLE_EQ(second.stream.logits_soft_cap, 30.0);
  EXPECT_DOUBLE_EQ(second.stream.embedding_scale, 8.0);

  const ModelConfig third = parse_model_config(gemma("gemma3_text", R"({"sliding_window": 9})"), "a");
  EXPECT_EQ(windows(third), (std::vector<std::int64_t>{9, 9, 9, 9, 9, 0, 9}));
  EXPECT_EQ(third.block(0).attention.qk_norm, QkNorm::weighted);
  EXPECT_EQ(third.block(0).attention.soft_cap, 0.0f);
  EXPECT_EQ(third.stream.logits_soft_cap, 0.0f);
  EXPECT_EQ(windows(parse_model_config(gemma("gemma3_text", R"({"sliding_window_pattern": 2})"), "a"))[1], 0);
}

// Transformers' Gemma3Attention leaves the cap out.
TEST(GemmaConfig, ACapOfScoresHasNoEffectInGemma3AndIsReported) {
  const ModelConfig third = parse_model_config(gemma("gemma3_text", R"({"attn_logit_softcapping": 1.5})"), "a");
  EXPECT_EQ(third.block(0).attention.soft_cap, 0.0f);
  EXPECT_EQ(third.unknown_fields, std::vector<std::string>{"attn_logit_softcapping"});
  const ModelConfig none = parse_model_config(gemma("gemma3_text", R"({"attn_logit_softcapping": null})"), "a");
  EXPECT_TRUE(none.unknown_fields.empty());
  const ModelConfig second = parse_model_config(gemma("gemma2", R"({"attn_logit_softcapping": 1.5})"), "a");
  EXPECT_DOUBLE_EQ(second.block(0).attention.soft_cap, 1.5);
  EXPECT_TRUE(second.unknown_fields.empty());
}

TEST(GemmaConfig, RopeOfBothVersionsOfTransformers) {
  const ModelConfig old = parse_model_config(
      gemma("gemma3_text", R"({"rope_theta": 5e5, "rope_local_base_freq": 7e3, "rope_scaling": {"rope_type": "linear",
          "factor": 2.0}})"),
      "a");
  const ModelConfig now = parse_model_config(
      gemma("gemma3_text",
            R"({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta":
          5e5}, "sliding_attention": {"rope_type": "default", "rope_theta": 7e3}}})"),
      "a");
  EXPECT_EQ(old.rope, now.rope);
  EXPECT_EQ(old.local_rope, now.local_rope);
  EXPECT_DOUBLE_EQ(now.local_rope->theta, 7e3);
  EXPECT_DOUBLE_EQ(now.rope.factor, 2.0);
  const Json other = gemma("gemma2", R"({"rope_parameters": {"full_attention": {"rope_theta": 5e5}}})");
  EXPECT_THAT(fault(other), HasSubstr("this family has one setting for all layers"));
}

TEST(GemmaConfig, IsWrittenAsItIsRead) {
  for (const char* type : {"gemma2", "gemma3_text"}) {
    const ModelConfig config = parse_model_config(
        gemma(type,
              R"({"query_pre_attn_scalar": 24, "final_logit_softcapping": 12.5, "sliding_window": 5, "layer_types":
            ["full_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
             "sliding_attention", "full_attention"]})"),
        "a");
    Json written = to_hf_json(config, DType::f32);
    written.erase("rope_theta");  // newer readers
    written.erase("rope_scaling");
    written.erase("rope_local_base_freq");
    const ModelConfig again = parse_model_config(written, "b");
    EXPECT_EQ(windows(again), windows(config));
    EXPECT_EQ(windows(again)[0], 0);
    EXPECT_EQ(again.rope, config.rope);
    EXPECT_EQ(again.local_rope, config.local_rope);
    EXPECT_NEAR(again.block(0).attention.scale, config.block(0).attention.scale, 1e-9);
    EXPECT_DOUBLE_EQ(again.stream.logits_soft_cap, 12.5);
    EXPECT_EQ(written.find("query_pre_attn_scalar")->dump(), "24");
  }
}

TEST(GemmaConfig, RefusesWhatItDoesNotExecute) {
  EXPECT_THAT(fault(gemma("gemma3_text", R"({"use_bidirectional_attention": true})")),
              HasSubstr("use_bidirectional_attention: true is not supported: attention to later tokens"));
  EXPECT_THAT(fault(gemma("gemma3_text", R"({"hidden_activation": "silu"})")),
              HasSubstr("hidden_activation: 'silu' is not supported; known: gelu_pytorch_tanh"));
  EXPECT_THAT(fault(gemma("gemma2", R"({"layer_types": ["full_attention"]})")),
              HasSubstr("expected a list of 7 names"));
  EXPECT_THAT(fault(gemma("gemma2", R"({"sliding_window": null})")), HasSubstr("sliding_window: is null, but"));
  EXPECT_THAT(fault(gemma("gemma2", R"({"attn_logit_softcapping": 0})")),
              HasSubstr("attn_logit_softcapping: 0 is not"));
  EXPECT_THAT(fault(gemma("llama", R"({"rope_local_base_freq": 1e4})")), HasSubstr("rope_local_base_freq"));
  EXPECT_THAT(fault(gemma("llama", R"({"hidden_activation": "gelu_pytorch_tanh"})")), HasSubstr("hidden_activation"));
}

}  // namespace
}  // namespace quench::nn
