// Qwen2, Qwen3 and their MoE models in llama.cpp.

#include "export/formats/gguf/architectures/architecture.h"
#include "export/formats/gguf/architectures/expert_metadata.h"

namespace quench {
namespace {

constexpr GgufTensorName kQwen2MoeGgufTensors[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
};
constexpr std::string_view kGgufSharedWidth = "expert_shared_feed_forward_length";

std::string qwen2_moe_gguf_problem(const nn::ModelConfig& config) {
  if (!config.qkv_bias) return "qkv_bias: files of this architecture have these biases";
  if (config.experts.normalize)
    return "norm_topk_prob: llama.cpp leaves router weights as they are in this architecture";
  if (config.sparse_layers() != config.num_hidden_layers)
    return "decoder_sparse_step, mlp_only_layers: llama.cpp has experts in every layer of this architecture";
  return {};
}

std::vector<GgufNumber> qwen2_moe_gguf_numbers(const nn::ModelConfig& config) {
  std::vector<GgufNumber> numbers = gguf_expert_sizes(config);
  numbers.push_back({kGgufSharedWidth, static_cast<std::uint32_t>(config.experts.shared_width)});
  return numbers;
}

void read_qwen2_moe_gguf(const GgufLookup& find, Json& config) {
  copy_gguf_integer(find, kGgufExpertCount, "num_experts", config);
  copy_gguf_integer(find, kGgufExpertsUsed, "num_experts_per_tok", config);
  copy_gguf_integer(find, kGgufExpertWidth, "moe_intermediate_size", config);
  copy_gguf_integer(find, kGgufSharedWidth, "shared_expert_intermediate_size", config);
}

constexpr GgufTensorName kQwen3MoeGgufTensors[] = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},           {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},      {"self_attn.o_proj", "attn_output"},      {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"}, {"mlp.gate", "ffn_gate_inp"},
};

std::string qwen3_moe_gguf_problem(const nn::ModelConfig& config) {
  if (!config.experts.normalize) return "norm_topk_prob: llama.cpp's router weights sum to 1 in this architecture";
  if (config.sparse_layers() != config.num_hidden_layers)
    return "decoder_sparse_step, mlp_only_layers: llama.cpp has experts in every layer of this architecture";
  return {};
}

void read_qwen3_moe_gguf(const GgufLookup& find, Json& config) {
  copy_gguf_integer(find, kGgufExpertCount, "num_experts", config);
  copy_gguf_integer(find, kGgufExpertsUsed, "num_experts_per_tok", config);
  copy_gguf_integer(find, kGgufExpertWidth, "moe_intermediate_size", config);
  config.set("norm_topk_prob", true);
}

}  // namespace

extern const GgufArchitecture kGgufQwen2, kGgufQwen2Moe, kGgufQwen3, kGgufQwen3Moe;
const GgufArchitecture kGgufQwen2{.model_type = "qwen2", .name = "qwen2", .wide_values = true};

const GgufArchitecture kGgufQwen2Moe{.model_type = "qwen2_moe",
                                     .name = "qwen2moe",
                                     .experts = true,
                                     .layer_tensors = kQwen2MoeGgufTensors,
                                     .problem = qwen2_moe_gguf_problem,
                                     .numbers = qwen2_moe_gguf_numbers,
                                     .read = read_qwen2_moe_gguf};

const GgufArchitecture kGgufQwen3{
    .model_type = "qwen3", .name = "qwen3", .bias_is_chosen = true, .free_head_dim = true};

const GgufArchitecture kGgufQwen3Moe{.model_type = "qwen3_moe",
                                     .name = "qwen3moe",
                                     .bias_is_chosen = true,
                                     .experts = true,
                                     .free_head_dim = true,
                                     .layer_tensors = kQwen3MoeGgufTensors,
                                     .problem = qwen3_moe_gguf_problem,
                                     .numbers = gguf_expert_sizes,
                                     .read = read_qwen3_moe_gguf};

}  // namespace quench
