// OLMo 2 in llama.cpp.

#include "export/formats/gguf/architectures/architecture.h"

namespace quench {
namespace {

constexpr GgufTensorName kOlmo2GgufTensors[] = {
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_attention_layernorm", "post_attention_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
};

std::string olmo2_gguf_problem(const nn::ModelConfig& config) {
  if (config.qkv_bias) return "attention_bias: llama.cpp has no biases in this architecture";
  if (config.tie_word_embeddings) return "tie_word_embeddings: llama.cpp needs a head of its own in this architecture";
  return {};
}

}  // namespace

extern const GgufArchitecture kGgufOlmo2;
const GgufArchitecture kGgufOlmo2{
    .model_type = "olmo2", .name = "olmo2", .layer_tensors = kOlmo2GgufTensors, .problem = olmo2_gguf_problem};

}  // namespace quench
