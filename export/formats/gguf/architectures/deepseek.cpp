// DeepSeek-V3 and R1 in llama.cpp.

#include <algorithm>

#include "export/formats/gguf/architectures/architecture.h"
#include "export/formats/gguf/architectures/expert_metadata.h"

namespace quench {
namespace {

constexpr std::string_view kGgufGating = "expert_gating_func";
constexpr std::uint32_t kGgufSigmoid = 2;  // llama.cpp's LLAMA_EXPERT_GATING_FUNC_TYPE_SIGMOID

constexpr GgufTensorName kDeepseekGgufTensors[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.o_proj", "attn_output"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};

std::string deepseek_gguf_problem(const nn::ModelConfig& config) {
  const nn::AttentionSpec& attention = config.block(0).attention;
  const nn::MlaSpec& mla = *attention.mla;
  if (mla.query_rank == 0) return "q_lora_rank: llama.cpp has a low-rank query projection in this architecture";
  if (mla.bias) return "attention_bias: llama.cpp has no biases in this architecture";
  if (!attention.rotary->interleaved) return "rope_interleave: llama.cpp rotates adjacent pairs in this architecture";
  if (mla.nope_dim == 0) return "qk_nope_head_dim: llama.cpp needs keys without positions";
  if (config.rms_norm_eps != mla.norm_eps)
    return fmt::format("rms_norm_eps {}: llama.cpp has the one of latent attention's norms, {}", config.rms_norm_eps,
                       mla.norm_eps);
  if (config.experts.shared_width == 0) return "n_shared_experts: llama.cpp has a shared expert";
  const nn::RopeScaling& rope = config.rope;
  if (rope.type == nn::RopeScaling::Type::yarn &&
      (rope.attention_factor || !rope.mscale || !rope.mscale_all_dim || *rope.mscale != *rope.mscale_all_dim))
    return "rope_scaling: llama.cpp has equal mscale and mscale_all_dim";
  return {};
}

std::vector<GgufNumber> deepseek_gguf_numbers(const nn::ModelConfig& config) {
  const nn::MlaSpec& mla = *config.block(0).attention.mla;
  const nn::ExpertsSpec& experts = config.experts;
  std::vector<GgufNumber> numbers = gguf_expert_sizes(config);
  const auto add = [&](std::string_view key, std::int64_t value) {
    numbers.push_back({key, static_cast<std::uint32_t>(value)});
  };
  // Computed with one key and value head of the latent's width.
  add("attention.head_count_kv", 1);
  add("attention.key_length", mla.kv_rank + mla.rotary_dim);
  add("attention.value_length", mla.kv_rank);
  add("attention.key_length_mla", mla.key_dim());
  add("attention.value_length_mla", mla.value_dim);
  add("attention.q_lora_rank", mla.query_rank);
  add("attention.kv_lora_rank", mla.kv_rank);
  add("leading_dense_block_count", config.num_hidden_layers - config.sparse_layers());
  add("expert_shared_count", experts.shared_width / experts.intermediate_size);
  add("expert_group_count", experts.groups);
  add("expert_group_used_count", experts.groups_per_token);
  add(kGgufGating, kGgufSigmoid);
  numbers.push_back({"expert_weights_scale", experts.factor});
  numbers.push_back({"expert_weights_norm", experts.normalize});
  return numbers;
}

void read_deepseek_gguf(const GgufLookup& find, Json& config) {
  const auto integer = [&](std::string_view key) { return static_cast<std::int64_t>(find(key).value_or(0)); };
  const std::int64_t rotary = integer("rope.dimension_count");
  copy_gguf_integer(find, "attention.q_lora_rank", "q_lora_rank", config);
  copy_gguf_integer(find, "attention.kv_lora_rank", "kv_lora_rank", config);
  config.set("qk_rope_head_dim", rotary);
  config.set("qk_nope_head_dim", integer("attention.key_length_mla") - rotary);
  copy_gguf_integer(find, "attention.value_length_mla", "v_head_dim", config);
  copy_gguf_integer(find, kGgufExpertCount, "n_routed_experts", config);
  copy_gguf_integer(find, kGgufExpertsUsed, "num_experts_per_tok", config);
  copy_gguf_integer(find, kGgufExpertWidth, "moe_intermediate_size", config);
  copy_gguf_integer(find, "leading_dense_block_count", "first_k_dense_replace", config);
  copy_gguf_integer(find, "expert_shared_count", "n_shared_experts", config);
  config.set("n_group", std::max<std::int64_t>(integer("expert_group_count"), 1));
  config.set("topk_group", std::max<std::int64_t>(integer("expert_group_used_count"), 1));
  config.set("routed_scaling_factor", find("expert_weights_scale").value_or(1.0));
  // llama.cpp takes softmax where the key is missing, as in files of DeepSeek-V2.
  const auto gating = find(kGgufGating);
  config.set("scoring_func", gating == kGgufSigmoid ? "sigmoid"
                                                    : fmt::format("softmax (deepseek2.{} {})", kGgufGating,
                                                                  gating ? fmt::format("{}", *gating) : "is missing"));
  config.set("norm_topk_prob", find("expert_weights_norm").value_or(0.0) != 0.0);
}

}  // namespace

extern const GgufArchitecture kGgufDeepseekV3;
const GgufArchitecture kGgufDeepseekV3{.model_type = "deepseek_v3",
                                       .name = "deepseek2",
                                       .experts = true,
                                       .latent_attention = true,
                                       .layer_tensors = kDeepseekGgufTensors,
                                       .problem = deepseek_gguf_problem,
                                       .numbers = deepseek_gguf_numbers,
                                       .read = read_deepseek_gguf};

}  // namespace quench
