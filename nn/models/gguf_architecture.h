#pragma once
// A family's models as llama.cpp stores and loads them.

#include <span>
#include <string_view>

namespace quench::nn {

// Tensor stems without ".weight" or ".bias": "self_attn.q_proj" and "attn_q" within a layer.
struct GgufTensorName {
  std::string_view hf, gguf;
};

// Of Llama and the families with its layers.
inline constexpr GgufTensorName kGgufLayerTensors[] = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};

struct GgufArchitecture {
  std::string_view name = {};         // llama.cpp's; "": no GGUF export
  bool interleaved_rotation = false;  // RoPE on adjacent pairs: query and key rows are reordered
  bool bias_is_chosen = false;        // config.json's attention_bias selects biases of attention projections
  // Capabilities of llama.cpp's loader.
  bool output_bias = false;    // bias of attention's output projection
  bool free_head_dim = false;  // head_dim * heads may differ from the hidden size
  bool rope_divisors = false;  // rope_freqs.weight
  std::span<const GgufTensorName> layer_tensors = kGgufLayerTensors;
};

}  // namespace quench::nn
