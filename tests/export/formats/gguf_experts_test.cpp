// GGUF files of models with experts: one tensor for the experts of a projection, metadata by which llama.cpp computes,
// and the same weights when the file is read.

#include "export/formats/gguf/experts.h"

#include "export/formats/gguf/latent_attention.h"
#include "export/formats/gguf/model_config.h"
#include "export/formats/gguf/reader.h"
#include "export/formats/gguf/writer.h"
#include "nn/decoder/causal_lm.h"
#include "nn/modules/rope_table.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

constexpr const char* kMixtralExperts = R"("architectures": ["MixtralForCausalLM"], "num_key_value_heads": 1,
    "num_local_experts": 3, "num_experts_per_tok": 2)";
constexpr const char* kQwenExperts = R"("architectures": ["Qwen3MoeForCausalLM"], "num_key_value_heads": 1,
    "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": true)";
constexpr const char* kQwen2Experts = R"("architectures": ["Qwen2MoeForCausalLM"], "num_key_value_heads": 1,
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48)";
constexpr const char* kGptOssExperts = R"("architectures": ["GptOssForCausalLM"], "num_key_value_heads": 1,
    "head_dim": 16, "num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": 32)";
constexpr const char* kLlama4Experts = R"("architectures": ["Llama4ForCausalLM"], "num_key_value_heads": 1,
    "head_dim": 16, "num_local_experts": 3, "num_experts_per_tok": 1, "intermediate_size_mlp": 32,
    "interleave_moe_layer_step": 2)";
constexpr const char* kDeepseekExperts = R"("architectures": ["DeepseekV3ForCausalLM"], "num_key_value_heads": 2,
    "first_k_dense_replace": 1, "kv_lora_rank": 32, "q_lora_rank": 16, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6,
    "v_head_dim": 12, "n_routed_experts": 8, "n_shared_experts": 2, "n_group": 4, "topk_group": 2,
    "num_experts_per_tok": 3, "moe_intermediate_size": 32, "rms_norm_eps": 1e-6, "routed_scaling_factor": 1.5)";

nn::ModelConfig with_experts(const std::string& family, const std::string& more = "") {
  const std::string text = R"({"vocab_size": 16, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
      "num_attention_heads": 2, "max_position_embeddings": 512, "tie_word_embeddings": false, )" +
                           family + (more.empty() ? "" : ", " + more) + "}";
  return nn::parse_model_config(Json::parse(text), "config.json");
}

struct WrittenGguf {
  TempDir folder;
  nn::CausalLm model;
  std::vector<ModelTensor> tensors;

  explicit WrittenGguf(const nn::ModelConfig& config, std::string_view experts_scheme = "") : model(config, {}) {
    model.initialize(1);
    tensors = model_tensors(model, DType::f32);
    for (ModelTensor& t : tensors)
      if (!experts_scheme.empty() && t.parameter->experts > 0 && t.shape.rank() == 2) {
        t.scheme = &require_scheme(experts_scheme, "scheme");
        t.quantized = std::make_shared<QuantizedWeight>(rtn(t.value(), t.scheme->weights, t.name, DType::f16));
      }
    (void)write_gguf({tensors, config, folder.path(), 1 << 30});
  }
  [[nodiscard]] std::filesystem::path file() const { return folder.path() / kGgufFileName; }
  [[nodiscard]] const Json& operator[](const std::string& key) {
    head = read_gguf_head(file());
    return head.metadata.at(key);
  }
  GgufHead head;
};

// Members that the program reads, without those of the source, and without the attention factor, which is explicit in
// files.
std::string members_of(nn::ModelConfig config) {
  config.source = Json::object();
  config.rope.attention_factor.reset();
  return nn::to_hf_json(config, DType::f32).dump();
}

std::string refused_experts(const nn::ModelConfig& config) {
  try {
    require_gguf_model(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(GgufExperts, WeightsAndConfigComeBack) {
  for (const char* family :
       {kMixtralExperts, kQwenExperts, kQwen2Experts, kGptOssExperts, kLlama4Experts, kDeepseekExperts}) {
    const nn::ModelConfig config = with_experts(family);
    const WrittenGguf written(config);
    const Json json = gguf_model_config(written.file());
    const nn::ModelConfig read = nn::parse_model_config(json, "model.gguf");
    EXPECT_EQ(members_of(read), members_of(config));
    EXPECT_NEAR(nn::rope_attention_factor(read.rope), nn::rope_attention_factor(config.rope), 1e-6);
    const auto weights = open_gguf(written.file(), json);
    EXPECT_EQ(weights->names().size(), written.tensors.size());
    for (const ModelTensor& t : written.tensors) {
      const auto found = weights->find(t.name);
      ASSERT_TRUE(found) << t.name;
      ASSERT_EQ(found->shape, t.shape) << t.name;
      const Tensor values = Tensor::empty(t.shape, *found->dtype);
      weights->read(t.name, values);
      EXPECT_TRUE(testing::equal_bytes(values, t.value())) << t.name;
    }
  }
}

// Without a scaling in the file: none, though Transformers' GptOssConfig has one by default.
TEST(GgufExperts, RopeOfGptOssWithoutScalingComesBack) {
  const WrittenGguf written(
      with_experts(kGptOssExperts, R"("rope_parameters": {"rope_type": "default", "rope_theta": 150.0})"));
  const nn::ModelConfig read = nn::parse_model_config(gguf_model_config(written.file()), "model.gguf");
  EXPECT_EQ(read.rope.type, nn::RopeScaling::Type::standard);
  EXPECT_DOUBLE_EQ(read.rope.theta, 150.0);
}

TEST(GgufExperts, AreOneTensorAProjection) {
  WrittenGguf written(with_experts(kGptOssExperts));
  EXPECT_EQ(written["gpt-oss.expert_count"], Json(3));
  EXPECT_EQ(written["gpt-oss.expert_used_count"], Json(2));
  EXPECT_EQ(written["gpt-oss.expert_feed_forward_length"], Json(96));
  EXPECT_EQ(written["gpt-oss.attention.sliding_window"], Json(32));
  std::map<std::string, Shape> shapes;
  for (const GgufEntry& entry : written.head.tensors) shapes.emplace(entry.name, entry.shape);
  EXPECT_EQ(shapes.at("blk.1.ffn_gate_exps.weight"), (Shape{3, 96, 64}));
  EXPECT_EQ(shapes.at("blk.1.ffn_up_exps.bias"), (Shape{3, 96}));
  EXPECT_EQ(shapes.at("blk.1.ffn_down_exps.weight"), (Shape{3, 64, 96}));
  EXPECT_EQ(shapes.at("blk.1.ffn_gate_inp.weight"), (Shape{3, 64}));
  EXPECT_EQ(shapes.at("blk.1.attn_sinks.weight"), (Shape{2}));
  EXPECT_TRUE(shapes.contains("blk.1.post_attention_norm.weight"));
}

TEST(GgufExperts, LatentAttentionHasKeysAndValuesOfItsOwn) {
  WrittenGguf written(with_experts(kDeepseekExperts, R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0,
      "original_max_position_embeddings": 64, "mscale": 0.8, "mscale_all_dim": 0.8})"));
  for (const auto& [key, value] : std::map<std::string, Json>{{"attention.head_count_kv", 1},
                                                              {"attention.key_length", 38},
                                                              {"attention.value_length", 32},
                                                              {"attention.key_length_mla", 16},
                                                              {"attention.value_length_mla", 12},
                                                              {"leading_dense_block_count", 1},
                                                              {"expert_shared_count", 2},
                                                              {"expert_group_count", 4},
                                                              {"expert_group_used_count", 2},
                                                              {"expert_gating_func", 2},
                                                              {"expert_weights_norm", true},
                                                              {"expert_weights_scale", 1.5},
                                                              {"rope.dimension_count", 6}})
    EXPECT_EQ(written["deepseek2." + key], value) << key;
  EXPECT_NEAR(written["deepseek2.rope.scaling.yarn_log_multiplier"].as_double(), 0.08, 1e-6);
  const nn::RopeScaling read = nn::parse_model_config(gguf_model_config(written.file()), "model.gguf").rope;
  EXPECT_NEAR(read.mscale_all_dim.value(), 0.8, 1e-6);
  EXPECT_EQ(read.mscale, read.mscale_all_dim);
  std::map<std::string, Shape> shapes;
  for (const GgufEntry& entry : written.head.tensors) shapes.emplace(entry.name, entry.shape);
  EXPECT_EQ(shapes.at("blk.0.attn_k_b.weight"), (Shape{2, 32, 10}));
  EXPECT_EQ(shapes.at("blk.0.attn_v_b.weight"), (Shape{2, 12, 32}));
  EXPECT_FALSE(shapes.contains("blk.0.attn_kv_b.weight"));
  EXPECT_TRUE(shapes.contains("blk.1.exp_probs_b.bias"));
  EXPECT_TRUE(shapes.contains("blk.1.ffn_gate_shexp.weight"));
  EXPECT_TRUE(shapes.contains("blk.0.ffn_gate.weight"));
  ModelTensor kv{.name = "model.layers.0.self_attn.kv_b_proj.weight"};
  EXPECT_NE(gguf_kept(kv), "");
}

// llama.cpp takes softmax for DeepSeek-V2's files, which lack the key.
TEST(GgufExperts, SoftmaxScoresOfDeepseekAreRefusedByTheKey) {
  const WrittenGguf written(with_experts(kDeepseekExperts));
  const std::string key = "deepseek2.expert_gating_func", good = testing::read_file(written.file());
  const std::size_t at = good.find(key);
  ASSERT_NE(at, std::string::npos);
  const auto refused = [&](std::size_t place, char byte) {
    std::string file = good;
    file[place] = byte;
    testing::write_file(written.file(), file);
    try {
      (void)nn::parse_model_config(gguf_model_config(written.file()), "model.gguf");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  EXPECT_THAT(refused(at, 'd'), HasSubstr("nothing was refused"));
  EXPECT_THAT(refused(at + key.size() - 1, 'x'),
              HasSubstr("scoring_func: 'softmax (deepseek2.expert_gating_func is missing)' is not supported"));
  EXPECT_THAT(refused(at + key.size() + 4, 1), HasSubstr("'softmax (deepseek2.expert_gating_func 1)'"));
}

TEST(GgufExperts, BlocksOfEveryExpertComeBack) {
  for (const char* scheme : {"q8_0", "mxfp4_weight_only", "mxfp4_gguf"}) {
    const WrittenGguf written(with_experts(kGptOssExperts), scheme);
    const auto weights = open_gguf(written.file(), gguf_model_config(written.file()));
    for (const ModelTensor& t : written.tensors) {
      if (t.quantized == nullptr) continue;
      EXPECT_TRUE(testing::equal_bytes(testing::unpacked(weights->read_packed(t.name)),
                                       testing::unpacked(pack(*t.quantized, t.name))))
          << scheme << " " << t.name;
    }
  }
}

TEST(GgufExperts, RefusesModelsThatLlamaCppComputesOtherwise) {
  EXPECT_THAT(refused_experts(with_experts(kQwenExperts, R"("mlp_only_layers": [0])")),
              HasSubstr("llama.cpp has experts in every layer"));
  EXPECT_THAT(refused_experts(with_experts(kQwen2Experts, R"("norm_topk_prob": true)")), HasSubstr("norm_topk_prob"));
  EXPECT_THAT(refused_experts(with_experts(kQwen2Experts, R"("qkv_bias": false)")), HasSubstr("qkv_bias"));
  EXPECT_THAT(refused_experts(with_experts(kQwen2Experts, R"("decoder_sparse_step": 2)")),
              HasSubstr("llama.cpp has experts in every layer"));
  EXPECT_THAT(refused_experts(with_experts(kGptOssExperts, R"("swiglu_limit": 3.0)")), HasSubstr("swiglu_limit"));
  EXPECT_THAT(refused_experts(with_experts(kGptOssExperts, R"("layer_types": ["full_attention", "full_attention"])")),
              HasSubstr("layer_types"));
  EXPECT_THAT(refused_experts(with_experts(kLlama4Experts, R"("no_rope_layers": [0, 1])")),
              HasSubstr("no_rope_layers"));
  EXPECT_THAT(refused_experts(with_experts(kLlama4Experts, R"("attention_chunk_size": 64)")),
              HasSubstr("attention_chunk_size 64: llama.cpp has 8192"));
  EXPECT_THAT(refused_experts(with_experts(kLlama4Experts, R"("use_qk_norm": false)")), HasSubstr("use_qk_norm"));
  EXPECT_THAT(refused_experts(with_experts(kDeepseekExperts, R"("rope_interleave": false)")),
              HasSubstr("rope_interleave"));
  EXPECT_THAT(refused_experts(with_experts(kDeepseekExperts, R"("attention_bias": true)")),
              HasSubstr("attention_bias"));
  EXPECT_THAT(refused_experts(with_experts(kDeepseekExperts, R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0,
      "original_max_position_embeddings": 64, "mscale": 1.0, "mscale_all_dim": 0.8})")),
              HasSubstr("equal mscale and mscale_all_dim"));
}

// An expert of another type than the others has no place in the tensor.
TEST(GgufExperts, RefusesExpertsOfDifferentTypes) {
  const nn::ModelConfig config = with_experts(kMixtralExperts);
  nn::CausalLm model(config, {});
  model.initialize(1);
  std::vector<ModelTensor> tensors = model_tensors(model, DType::f32);
  for (ModelTensor& t : tensors)
    if (t.name.find("experts.1.w2") != std::string::npos)
      t.quantized = std::make_shared<QuantizedWeight>(
          rtn(t.value(), require_scheme("q8_0", "scheme").weights, t.name, DType::f16));
  const TempDir folder;
  EXPECT_THAT(
      [&] {
        (void)write_gguf({tensors, config, folder.path(), 1 << 30});
      },
      ::testing::ThrowsMessage<Error>(HasSubstr("an expert has type Q8_0, another F32")));
}

TEST(GgufExperts, NamesOfExpertsAreTranslated) {
  const nn::ExpertsSpec experts = with_experts(kMixtralExperts).experts;
  EXPECT_EQ(gguf_experts_name("model.layers.12.block_sparse_moe.experts.7.w3.weight", experts),
            "blk.12.ffn_up_exps.weight");
  for (const char* name :
       {"model.layers.0.block_sparse_moe.gate.weight", "model.layers.x.block_sparse_moe.experts.7.w3",
        "model.layers.0.block_sparse_moe.experts.", "model.layers.0.block_sparse_moe.experts.7.w9.weight"})
    EXPECT_EQ(gguf_experts_name(name, experts), std::nullopt) << name;
  const GgufEntry entry{.name = "blk.0.ffn_up_exps.weight", .shape = {2, 96, 64}, .bytes = 96};
  EXPECT_THAT([&] { (void)gguf_experts_of(entry, experts, "m.gguf"); },
              ::testing::ThrowsMessage<Error>(HasSubstr("m.gguf: blk.0.ffn_up_exps.weight has shape")));
}

}  // namespace
}  // namespace quench
