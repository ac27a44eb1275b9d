// Parsing and refusals of DeepSeek-V3's config.json.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "nn/decoder/causal_lm.h"
#include "nn/modules/rope_scale.h"
#include "tests/nn/spec/config_testing.h"

namespace quench::nn {
namespace {

using testing::fault_of;
using ::testing::HasSubstr;
using testing::parsed;
using testing::sparse_layers;

Json deepseek() {
  return Json::parse(R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": 48,
      "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 4, "num_attention_heads": 4,
      "num_key_value_heads": 4, "max_position_embeddings": 64, "n_routed_experts": 8, "n_shared_experts": 2,
      "num_experts_per_tok": 3, "moe_intermediate_size": 12, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1,
      "routed_scaling_factor": 1.5, "kv_lora_rank": 20, "q_lora_rank": 14, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6,
      "v_head_dim": 12, "attention_bias": true})");
}

TEST(DeepseekConfig, SaysWhatIsComputed) {
  const ModelConfig config = parsed(deepseek());
  EXPECT_EQ(sparse_layers(config), (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(config.experts.shared_width, 24);
  EXPECT_TRUE(config.experts.sigmoid && config.experts.normalize && config.experts.expert_bias);
  EXPECT_FLOAT_EQ(config.experts.factor, 1.5f);
  EXPECT_EQ(config.block(0).attention.mla->key_dim(), 16);
  EXPECT_EQ(config.head_dim, 6) << "what is rotated, as in Transformers";
  EXPECT_EQ(config.block(0).attention.key_dim, 16);
}

// vLLM makes the expert bias under this method only, and Transformers 5 leaves both members out.
TEST(DeepseekConfig, NamesTheRouterMethodForOtherReaders) {
  const Json written = to_hf_json(parsed(deepseek()), DType::f32);
  EXPECT_EQ(written.at("topk_method"), Json("noaux_tc"));
  EXPECT_EQ(written.at("scoring_func"), Json("sigmoid"));
}

TEST(DeepseekConfig, IsWrittenAsItWasRead) {
  const ModelConfig config = parsed(deepseek()), again = parsed(to_hf_json(config, DType::f32));
  EXPECT_EQ(sparse_layers(again), sparse_layers(config));
  EXPECT_EQ(again.experts.groups, 4);
  EXPECT_EQ(again.experts.shared_width, 24);
  EXPECT_FLOAT_EQ(again.experts.factor, 1.5f);
  EXPECT_EQ(again.block(0).attention.mla->query_rank, 14);
  EXPECT_TRUE(again.block(0).attention.mla->bias);
  Json direct = deepseek();
  direct.set("q_lora_rank", Json());
  EXPECT_EQ(parsed(to_hf_json(parsed(direct), DType::f32)).block(0).attention.mla->query_rank, 0)
      << "null is not absent here";
}

TEST(DeepseekConfig, SizesCountWhatTheModelHas) {
  for (const bool direct : {false, true}) {
    Json json = deepseek();
    if (direct) json.set("q_lora_rank", Json());
    const ModelConfig config = parsed(json);
    CausalLm model(config, {});
    std::int64_t total = 0;
    for (const Parameter* p : model.parameters()) total += p->numel();
    EXPECT_EQ(config.parameter_count(), total);
    EXPECT_EQ(total - config.active_parameter_count(), 3 * 5 * 3 * 32 * 12) << "five of eight experts in three layers";
  }
}

TEST(DeepseekConfig, LayersOfMultiTokenPrediction) {
  Json json = deepseek();
  json.set("num_nextn_predict_layers", 2);
  ModelConfig config = parsed(json);
  EXPECT_EQ(config.mtp.declared, 2);
  EXPECT_EQ(config.mtp.layers, 0) << "they take part in training alone";
  EXPECT_EQ(to_hf_json(config, DType::f32).at("num_nextn_predict_layers"), Json(0));
  const std::int64_t without = config.parameter_count();
  const double flops = config.training_flops_per_token(16);
  config.mtp.layers = 2;
  EXPECT_EQ(to_hf_json(config, DType::f32).at("num_nextn_predict_layers"), Json(2));
  EXPECT_EQ(config.routed_layers(), 5);
  ASSERT_EQ(config.mtp_blocks().size(), 2u);
  EXPECT_TRUE(config.mtp_blocks()[1].feed_forward.experts.has_value());
  EXPECT_EQ(config.mtp_blocks()[1].layer, 5);
  CausalLm model(config, {});
  std::int64_t total = 0, of_layers = 0;
  for (const Parameter* p : model.parameters()) {
    total += p->numel();
    if (p->name.starts_with("model.layers.3.")) of_layers += p->numel();
  }
  EXPECT_EQ(config.parameter_count(), total);
  EXPECT_EQ(total - without, 2 * (of_layers + 2 * 32 * 32 + 3 * 32));
  Json six = deepseek();
  six.set("num_hidden_layers", 6);
  const ModelConfig deeper = parsed(six);
  EXPECT_DOUBLE_EQ(config.training_flops_per_token(16) - flops,
                   deeper.training_flops_per_token(16) - flops + 6.0 * 2 * (48 * 32 + 2 * 32 * 32));
  // All decoder layers may be dense: a layer after them has experts.
  json.set("first_k_dense_replace", 4);
  config = parsed(json);
  config.mtp.layers = 1;
  EXPECT_TRUE(config.mtp_blocks()[0].feed_forward.experts.has_value());
  EXPECT_EQ(config.routed_layers(), 1);
  json.set("num_nextn_predict_layers", -1);
  EXPECT_THAT(fault_of(json), HasSubstr("num_nextn_predict_layers"));
  Json llama = Json::parse(R"({"model_type": "llama", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 40,
      "num_hidden_layers": 1, "num_attention_heads": 4, "num_nextn_predict_layers": 1})");
  EXPECT_THAT(fault_of(llama), HasSubstr("num_nextn_predict_layers: 1 is not supported"));
}

TEST(DeepseekConfig, InvalidConfigsAreRefused) {
  const auto with = [](std::string_view key, Json value) {
    Json json = deepseek();
    json.set(std::string(key), std::move(value));
    return fault_of(json);
  };
  EXPECT_THAT(with("n_group", 3), HasSubstr("n_group: 8 experts do not form 3 groups of equal size"));
  EXPECT_THAT(with("n_group", 8), HasSubstr("n_group: 8 groups of 8 experts have a single one each"));
  EXPECT_THAT(with("topk_group", 5), HasSubstr("topk_group: 5 groups for each token, of 4"));
  EXPECT_THAT(with("num_experts_per_tok", 5),
              HasSubstr("num_experts_per_tok: 5 experts for each token, of 4 in its 2"));
  EXPECT_THAT(with("num_key_value_heads", 2), HasSubstr("num_key_value_heads: 2, but latent attention"));
  EXPECT_THAT(with("qk_rope_head_dim", 5), HasSubstr("qk_rope_head_dim: 5 is odd"));
  EXPECT_THAT(with("v_head_dim", 17),
              HasSubstr("v_head_dim: 17 is more than qk_nope_head_dim 10 + qk_rope_head_dim 6"));
  EXPECT_THAT(with("topk_method", "greedy"), HasSubstr("topk_method: 'greedy' is not supported"));
  EXPECT_THAT(with("scoring_func", "softmax"), HasSubstr("scoring_func: 'softmax' is not supported"));
  EXPECT_THAT(with("moe_layer_freq", 2), HasSubstr("moe_layer_freq: only 1 is supported"));
  Json llama = Json::parse(R"({"model_type": "llama", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 40,
      "num_hidden_layers": 1, "num_attention_heads": 4, "kv_lora_rank": 20})");
  EXPECT_THAT(fault_of(llama), HasSubstr("kv_lora_rank: 20 is not supported"));
}

TEST(DeepseekConfig, ScoresFollowTheRescaling) {
  RopeScaling rope{.type = RopeScaling::Type::yarn, .factor = 40.0};
  EXPECT_EQ(rope_score_factor(rope), 1.0);
  rope.mscale_all_dim = 1.0;
  EXPECT_NEAR(rope_score_factor(rope), std::pow(0.1 * std::log(40.0) + 1.0, 2), 1e-12);
  rope.type = RopeScaling::Type::linear;
  EXPECT_EQ(rope_score_factor(rope), 1.0);
}

}  // namespace
}  // namespace quench::nn
