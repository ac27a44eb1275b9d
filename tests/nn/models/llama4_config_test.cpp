// Parsing and refusals of Llama 4's config.json.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/decoder/causal_lm.h"
#include "nn/modules/rope_table.h"
#include "tests/nn/spec/config_testing.h"

namespace quench::nn {
namespace {

using testing::fault_of;
using ::testing::HasSubstr;
using testing::parsed;
using testing::sparse_layers;

Json llama4() {
  return Json::parse(R"({"architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text", "vocab_size": 48,
      "hidden_size": 32, "intermediate_size": 12, "intermediate_size_mlp": 40, "num_hidden_layers": 4,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64,
      "num_local_experts": 8, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": 16,
      "floor_scale": 4, "attn_scale": 0.5})");
}

Json with(std::string_view key, Json value) {
  Json json = llama4();
  json.set(std::string(key), std::move(value));
  return json;
}

using Flags = std::vector<bool>;

Flags rotated_layers(const ModelConfig& config) {
  Flags flags;
  for (const BlockSpec& block : config.blocks) flags.push_back(block.attention.rotary.has_value());
  return flags;
}

Flags chunked_layers(const ModelConfig& config) {
  Flags flags;
  for (const BlockSpec& block : config.blocks) flags.push_back(block.attention.chunk > 0);
  return flags;
}

TEST(Llama4Config, SaysWhatIsComputed) {
  const ModelConfig config = parsed(llama4());
  EXPECT_EQ(config.intermediate_size, 40);
  EXPECT_EQ(config.experts.intermediate_size, 12);
  EXPECT_EQ(config.experts.shared_width, 12);
  EXPECT_EQ(sparse_layers(config), (Flags{false, true, false, true}));
  EXPECT_TRUE(config.experts.sigmoid && config.experts.score_before_experts && !config.experts.normalize);
  EXPECT_EQ(rotated_layers(config), (Flags{true, true, true, false})) << "every fourth layer has no positions";
  EXPECT_EQ(chunked_layers(config), rotated_layers(config));
  const AttentionSpec rotated = config.block(0).attention, whole = config.block(3).attention;
  EXPECT_EQ(rotated.chunk, 16);
  EXPECT_EQ(whole.chunk, 0);
  ASSERT_TRUE(rotated.rotary);
  EXPECT_TRUE(rotated.rotary->interleaved && rotated.qk_norm == QkNorm::unweighted && !rotated.temperature);
  EXPECT_TRUE(!whole.rotary && whole.qk_norm == QkNorm::none && whole.temperature);
  EXPECT_DOUBLE_EQ(whole.temperature->scale, 0.5);
}

// Meta's first files: an empty list for none, a number for a switch, factors of the rotation that leave nothing
// between.
TEST(Llama4Config, ReadsThePublishedFiles) {
  Json json = with("no_rope_layers", Json::array());
  json.set("attn_temperature_tuning", 4);
  json.set("moe_layers", Json::parse("[3]"));
  json.set("rope_scaling", Json::parse(R"({"factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0,
                                           "original_max_position_embeddings": 8192, "rope_type": "llama3"})"));
  const ModelConfig config = parsed(json);
  EXPECT_EQ(rotated_layers(config), (Flags{true, true, true, false}));
  EXPECT_TRUE(config.block(3).attention.temperature);
  EXPECT_EQ(sparse_layers(config), (Flags{false, false, false, true}));
  EXPECT_FALSE(parsed(with("attn_temperature_tuning", 0)).block(3).attention.temperature);
}

TEST(Llama4Config, IsWrittenAsItWasRead) {
  Json json = with("no_rope_layers", Json::parse("[1, 0, 0, 1]"));
  json.set("layer_types",
           Json::parse(R"(["full_attention", "chunked_attention", "full_attention", "full_attention"])"));
  json.set("use_qk_norm", false);
  json.set("attention_bias", true);
  const ModelConfig config = parsed(json), again = parsed(to_hf_json(config, DType::f32));
  EXPECT_EQ(rotated_layers(again), (Flags{true, false, false, true}));
  EXPECT_EQ(chunked_layers(again), (Flags{false, true, false, false}));
  EXPECT_EQ(again.block(0).attention.qk_norm, QkNorm::none);
  EXPECT_TRUE(again.qkv_bias && again.output_bias);
  EXPECT_EQ(sparse_layers(again), sparse_layers(config));
  EXPECT_EQ(again.intermediate_size, 40);
  EXPECT_EQ(again.experts.intermediate_size, 12);
  EXPECT_EQ(again.block(1).attention.temperature, (QueryTemperature{.scale = 0.5, .step = 4}));
}

TEST(Llama4Config, NumbersThatNoLayerHasAreWrittenToo) {
  Json json = with("no_rope_layers", Json::parse("[1, 1, 1, 1]"));
  json.set("layer_types", Json::parse(R"(["full_attention", "full_attention", "full_attention", "full_attention"])"));
  json.set("attn_temperature_tuning", 4);
  const Json written = to_hf_json(parsed(json), DType::f32);
  EXPECT_EQ(written.at("attention_chunk_size"), Json(16));
  EXPECT_EQ(written.at("attn_temperature_tuning"), Json(true));
  EXPECT_EQ(written.at("attn_scale"), Json(0.5));
  EXPECT_EQ(written.at("floor_scale"), Json(4));
  EXPECT_EQ(written.at("use_qk_norm"), Json(true));
}

TEST(Llama4Config, SizesCountWhatTheModelHas) {
  const ModelConfig config = parsed(llama4());
  CausalLm model(config, {});
  std::int64_t total = 0;
  for (const Parameter* p : model.parameters()) total += p->numel();
  EXPECT_EQ(config.parameter_count(), total);
  EXPECT_EQ(total - config.active_parameter_count(), 2 * 7 * 3 * 32 * 12) << "seven of eight experts in two layers";
}

// 40 tokens in chunks of 16: triangles of 16, 16 and 8, in three of four layers.
TEST(Llama4Config, ChunksTakeFewerOperations) {
  const ModelConfig config = parsed(llama4());
  const double attention = config.training_flops_per_token(40) - config.training_flops_per_token(0);
  const double chunked = (16.0 * 16 + 16 * 16 + 8 * 8) / 40;
  EXPECT_NEAR(attention, 6 * 4 * 8 * (3 * chunked + 40), 1e-6);
}

TEST(Llama4Config, ScalesOfQueriesGrowWithThePosition) {
  const QueryTemperature temperature = parsed(llama4()).block(3).attention.temperature.value();
  EXPECT_FALSE(make_query_scales(temperature, 8, 3, Device{}).cos.defined()) << "all are 1";
  const RopeTable scales = make_query_scales(temperature, 8, 64, Device{});
  for (const auto& [position, steps] : {std::pair{0, 0}, {2, 0}, {3, 1}, {6, 1}, {7, 2}, {63, 16}}) {
    EXPECT_FLOAT_EQ(scales.cos.data<float>()[position * 4 + 3], 1.0f + 0.5f * std::log1p(static_cast<float>(steps)));
    EXPECT_EQ(scales.sin.data<float>()[position * 4], 0.0f);
  }
}

TEST(Llama4Config, InvalidConfigsAreRefused) {
  EXPECT_THAT(fault_of(with("num_experts_per_tok", 9)), HasSubstr("9 experts for each token of a model with 8"));
  EXPECT_THAT(fault_of(with("moe_layers", Json::parse("[4]"))), HasSubstr("moe_layers: 4 is no layer"));
  EXPECT_THAT(fault_of(with("no_rope_layers", Json::parse("[1, 0]"))),
              HasSubstr("no_rope_layers: expected a list of 4 numbers"));
  EXPECT_THAT(fault_of(with("no_rope_layers", Json::parse("[1, 0, 2, 1]"))),
              HasSubstr("no_rope_layers: 2 of layer 2 is neither 0 nor 1"));
  EXPECT_THAT(fault_of(with("layer_types", Json::parse(R"(["full_attention"])"))),
              HasSubstr("layer_types: expected a list of 4 names"));
  EXPECT_THAT(
      fault_of(with("layer_types", Json::parse(R"(["full_attention", "full_attention",
                                                                  "sliding_attention", "full_attention"])"))),
      HasSubstr("layer_types: \"sliding_attention\" is not supported; known: full_attention, chunked_attention"));
  EXPECT_THAT(fault_of(with("attention_chunk_size", 0)), HasSubstr("attention_chunk_size: 0 is outside 1.."));
  EXPECT_THAT(fault_of(with("attention_chunk_size", Json())), HasSubstr("attention_chunk_size: null"));
  EXPECT_THAT(fault_of(with("floor_scale", 0)), HasSubstr("floor_scale: 0 is not a positive number"));
  EXPECT_THAT(fault_of(with("router_jitter_noise", 0.1)), HasSubstr("router_jitter_noise"));
  EXPECT_THAT(fault_of(with("head_dim", 7)), HasSubstr("head_dim: 7 is odd"));
  Json llama = Json::parse(R"({"model_type": "llama", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 40,
      "num_hidden_layers": 1, "num_attention_heads": 4, "attention_chunk_size": 16})");
  EXPECT_THAT(fault_of(llama), HasSubstr("attention_chunk_size: 16 is not supported"));
}

}  // namespace
}  // namespace quench::nn
