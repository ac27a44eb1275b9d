#include <gmock/gmock.h>

#include "nn/decoder/causal_lm.h"
#include "tests/nn/spec/config_testing.h"

namespace quench::nn {
namespace {

using ::testing::HasSubstr;

Json gpt_oss(std::string_view more = "{}") {
  Json json = Json::parse(R"({"architectures": ["GptOssForCausalLM"], "vocab_size": 48, "hidden_size": 64,
      "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2})");
  const Json members = Json::parse(more);
  for (const auto& [key, value] : members.as_object()) json.set(key, value);
  return json;
}

std::string gpt_oss_fault(const Json& json) {
  try {
    (void)parse_model_config(json, "config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Defaults of Transformers' GptOssConfig.
TEST(GptOssConfig, AbsentMembersGetTransformersDefaults) {
  const ModelConfig c = parse_model_config(Json::parse(R"({"model_type": "gpt_oss"})"), "a");
  EXPECT_EQ(c.parameter_count(), 116829156672);
  EXPECT_EQ(c.rope.type, RopeScaling::Type::yarn);
  EXPECT_FALSE(c.rope.truncate);
  EXPECT_DOUBLE_EQ(c.rope.theta, 150000);
  EXPECT_DOUBLE_EQ(c.rope.factor, 32);
  EXPECT_EQ(c.experts.count, 128);
  EXPECT_EQ(c.experts.per_token, 4);
  EXPECT_FLOAT_EQ(c.experts.clamped->limit, 7);
  EXPECT_FLOAT_EQ(c.experts.clamped->slope, 1.702f);
  for (const BlockSpec& block : c.blocks) {
    EXPECT_EQ(block.attention.window, block.layer % 2 == 0 ? 128 : 0);
    EXPECT_TRUE(block.attention.sinks && block.attention.qkv_bias && block.attention.output_bias);
    EXPECT_TRUE(block.feed_forward.experts->bias && block.feed_forward.experts->router_bias);
  }
}

TEST(GptOssConfig, WrittenConfigReadsBack) {
  const ModelConfig c = parse_model_config(
      gpt_oss(R"({"swiglu_limit": 3.5, "sliding_window": 9, "attention_bias": false, "experts_per_token": 2,
          "layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention"],
          "initial_context_length": 4096, "rope_theta": 1000.0})"),
      "a");
  EXPECT_TRUE(c.unknown_fields.empty());
  const ModelConfig again = parse_model_config(to_hf_json(c, DType::bf16), "b");
  EXPECT_EQ(again.rope, c.rope);
  EXPECT_DOUBLE_EQ(again.rope.theta, 1000);
  for (std::int64_t layer = 0; layer < 4; ++layer) EXPECT_EQ(again.block(layer).attention.window, layer == 2 ? 9 : 0);
  EXPECT_FLOAT_EQ(again.experts.clamped->limit, 3.5);
  EXPECT_FALSE(again.block(0).attention.qkv_bias);
}

// Transformers 4 reads rope_scaling alone, and scales where that is absent.
TEST(GptOssConfig, RopeWithoutScalingIsWrittenForBothVersionsOfTransformers) {
  const ModelConfig c =
      parse_model_config(gpt_oss(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}})"), "a");
  EXPECT_EQ(c.rope.type, RopeScaling::Type::standard);
  const Json written = to_hf_json(c, DType::f32);
  ASSERT_NE(written.find("rope_scaling"), nullptr);
  EXPECT_TRUE(written.find("rope_scaling")->is_null());
  EXPECT_EQ(parse_model_config(written, "b").rope, c.rope);
}

TEST(GptOssConfig, FaultsNameTheMember) {
  EXPECT_THAT(gpt_oss_fault(gpt_oss(R"({"layer_types": ["full_attention"]})")), HasSubstr("layer_types"));
  EXPECT_THAT(gpt_oss_fault(gpt_oss(R"({"sliding_window": null})")), HasSubstr("sliding_window: is null"));
  EXPECT_THAT(gpt_oss_fault(gpt_oss(R"({"swiglu_limit": 0})")), HasSubstr("swiglu_limit"));
  Json llama = gpt_oss(R"({"swiglu_limit": 7.0})");
  llama.set("architectures", Json::parse(R"(["LlamaForCausalLM"])"));
  EXPECT_THAT(gpt_oss_fault(llama), HasSubstr("swiglu_limit"));
}

TEST(GptOssConfig, ParametersHaveTheirPublishedNames) {
  const ModelConfig config = parse_model_config(gpt_oss(), "a");
  constexpr Device kMeta{DeviceType::meta, 0};
  CausalLm model(config, {.device = kMeta});
  std::int64_t count = 0;
  std::vector<std::string> names;
  for (const Parameter* p : model.parameters()) {
    count += p->numel();
    for (const ParameterPiece& piece : p->pieces) names.push_back(piece.hf_name);
  }
  EXPECT_EQ(count, config.parameter_count());
  for (const char* name : {"model.layers.1.self_attn.sinks", "model.layers.1.mlp.router.weight",
                           "model.layers.1.mlp.router.bias", "model.layers.1.mlp.experts.3.up_proj.bias",
                           "model.layers.1.mlp.experts.0.down_proj.weight", "model.layers.1.self_attn.o_proj.bias"})
    EXPECT_THAT(names, ::testing::Contains(name));
}

}  // namespace
}  // namespace quench::nn
