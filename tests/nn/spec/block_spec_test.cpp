// The blocks of every family: what a layer executes, and that sizes, caches and modules follow it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/attention/kv_cache.h"
#include "nn/decoder/causal_lm.h"
#include "nn/spec/model_family.h"
#include "tests/nn/spec/config_testing.h"

namespace quench::nn {
namespace {

using testing::parsed;

ModelConfig small(std::string_view architecture, std::string_view more = "{}") {
  Json json = Json::parse(R"({"vocab_size": 48, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 4,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64})");
  json.set("architectures", Json(Json::Array{Json(architecture)}));
  const Json members = Json::parse(more);
  for (const auto& [key, value] : members.as_object()) json.set(key, value);
  return parsed(json);
}

constexpr std::string_view kDeepseek = R"({"num_key_value_heads": 4, "kv_lora_rank": 12, "q_lora_rank": 14,
    "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 12, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 12, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1})";
constexpr std::string_view kLlama4 = R"({"intermediate_size_mlp": 40, "num_local_experts": 8,
    "interleave_moe_layer_step": 2, "attention_chunk_size": 16})";

std::vector<ModelConfig> one_of_each() {
  return {small("LlamaForCausalLM", R"({"attention_bias": true, "mlp_bias": true})"),
          small("MistralForCausalLM", R"({"sliding_window": 5})"),
          small("MixtralForCausalLM", R"({"num_local_experts": 4})"),
          small("Qwen2ForCausalLM"),
          small("Qwen3ForCausalLM", R"({"attention_bias": true})"),
          small("Qwen3MoeForCausalLM", R"({"num_experts": 4, "num_experts_per_tok": 2, "mlp_only_layers": [0]})"),
          small("DeepseekV3ForCausalLM", kDeepseek),
          small("Llama4ForCausalLM", kLlama4),
          small("Gemma2ForCausalLM"),
          small("Gemma3ForCausalLM", R"({"sliding_window_pattern": 3, "attention_bias": true})"),
          small("GptOssForCausalLM", R"({"num_local_experts": 4, "num_experts_per_tok": 2})"),
          small("GraniteForCausalLM", R"({"attention_multiplier": 0.1})"),
          small("Olmo2ForCausalLM"),
          small("SmolLM3ForCausalLM"),
          small("Glm4ForCausalLM"),
          small("Phi3ForCausalLM", R"({"partial_rotary_factor": 0.5})"),
          small("Qwen2MoeForCausalLM", R"({"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
                                           "shared_expert_intermediate_size": 20, "mlp_only_layers": [0]})")};
}

TEST(BlockSpec, EveryFamilyMakesItsLayers) {
  EXPECT_EQ(one_of_each().size(), model_families().size());
  for (const ModelConfig& config : one_of_each()) {
    SCOPED_TRACE(config.model_type);
    const std::vector<BlockSpec>& blocks = config.blocks;
    ASSERT_EQ(std::ssize(blocks), config.num_hidden_layers);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(blocks[i].layer, static_cast<std::int64_t>(i));
      EXPECT_NE(blocks[i].attention.make, nullptr);
      EXPECT_NE(blocks[i].feed_forward.make, nullptr);
      EXPECT_EQ(blocks[i].attention.norm.form.eps, config.rms_norm_eps);
    }
  }
}

TEST(BlockSpec, SizesAndCachesFollowIt) {
  for (const ModelConfig& config : one_of_each()) {
    SCOPED_TRACE(config.model_type);
    CausalLm model(config, {});
    std::int64_t total = 0;
    for (const Parameter* p : model.parameters()) total += p->numel();
    EXPECT_EQ(config.parameter_count(), total);
    const KvCache cache(config, 3, DType::f32, Device{});
    for (const BlockSpec& block : config.blocks) {
      EXPECT_EQ(cache.rows(block.layer).size(1), 2 * block.attention.kv_heads * block.attention.key_dim);
      const std::string layer = fmt::format("model.layers.{}.", block.layer);
      const NormSpec& named =
          block.feed_forward.norm.name.empty() ? *block.feed_forward.post_norm : block.feed_forward.norm;
      bool norm = false, feed_forward = false;
      for (const Parameter* p : model.parameters()) {
        norm |= p->name == layer + std::string(named.name) + ".weight";
        feed_forward |= p->name.starts_with(layer + std::string(block.feed_forward.name) + ".");
      }
      EXPECT_TRUE(norm && feed_forward);
    }
  }
}

TEST(BlockSpec, LayersDiffer) {
  const ModelConfig qwen = small("Qwen2ForCausalLM", R"({"use_sliding_window": true, "sliding_window": 7,
      "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]})");
  EXPECT_EQ(qwen.block(0).attention.window, 0);
  EXPECT_EQ(qwen.block(1).attention.window, 7);
  EXPECT_TRUE(qwen.block(0).attention.qkv_bias && !qwen.block(0).attention.output_bias);

  const ModelConfig deepseek = small("DeepseekV3ForCausalLM", kDeepseek);
  const BlockSpec dense = deepseek.block(0), sparse = deepseek.block(1);
  EXPECT_EQ(dense.attention.key_dim, 16);
  EXPECT_EQ(dense.attention.value_dim, 12);
  EXPECT_TRUE(dense.attention.rotary->interleaved);
  EXPECT_EQ(dense.attention.rotary->dim, 6);
  EXPECT_EQ(dense.feed_forward.active_width(), 24);
  EXPECT_FALSE(dense.feed_forward.experts);
  EXPECT_EQ(sparse.feed_forward.active_width(), 24) << "2 experts of 12";
  EXPECT_EQ(sparse.feed_forward.experts->shared_width, 12);

  const ModelConfig llama4 = small("Llama4ForCausalLM", kLlama4);
  EXPECT_EQ(llama4.block(0).feed_forward.name, "feed_forward");
  EXPECT_EQ(llama4.block(0).feed_forward.intermediate_size, 40);
  EXPECT_TRUE(llama4.block(1).feed_forward.experts->score_before_experts);
  EXPECT_TRUE(llama4.block(2).attention.rotary && !llama4.block(3).attention.rotary);
}

TEST(BlockSpec, LayersOfEqualRotationShareATable) {
  const ModelConfig config = small("Llama4ForCausalLM", kLlama4);
  LayerRotations rotations(config);
  const auto tables_for = [](LayerRotations& of, std::int64_t length) {
    return of.rows(std::vector<SequenceRange>{{0, length, 0, length}}, Device{}).tables;
  };
  const auto tables = tables_for(rotations, 40);
  ASSERT_EQ(tables->size(), 4U);
  EXPECT_EQ(tables->at(0).cos.raw_data(), tables->at(2).cos.raw_data());
  EXPECT_EQ(tables->at(0).cos.size(0), 64);
  EXPECT_FALSE(tables->at(3).cos.defined()) << "scales of 1 below floor_scale";
  EXPECT_EQ(tables_for(rotations, 64), tables);
  EXPECT_NE(tables_for(rotations, 65), tables);
}

TEST(BlockSpec, LayersOfDifferentRotationHaveTheirOwn) {
  const ModelConfig config = small("DeepseekV3ForCausalLM", kDeepseek);
  const auto deepseek = LayerRotations(config).rows(std::vector<SequenceRange>{{0, 8, 0, 8}}, Device{}).tables;
  EXPECT_EQ(deepseek->at(1).cos.size(1), 3);
  EXPECT_FALSE(rotations_depend_on_length(config, 1000));
  const ModelConfig dynamic = small("LlamaForCausalLM", R"({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}})");
  EXPECT_FALSE(rotations_depend_on_length(dynamic, 64));
  EXPECT_TRUE(rotations_depend_on_length(dynamic, 65));
}

}  // namespace
}  // namespace quench::nn
