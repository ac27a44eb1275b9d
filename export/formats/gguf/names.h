#pragma once
// llama.cpp's names of architectures and tensors.

#include <optional>
#include <string>
#include <string_view>

#include "nn/model_config.h"

namespace quench {

struct GgufArchitecture {
  std::string_view model_type;  // Hugging Face model_type
  std::string_view hf_name;     // Hugging Face class
  std::string_view name;        // llama.cpp name
  bool interleaved_rotation;    // RoPE on adjacent pairs: reordered query and key rows
  bool bias_is_chosen;          // config.json's attention_bias selects biases of attention
  // Of llama.cpp's loader:
  bool output_bias;    // bias of attention's output projection
  bool free_head_dim;  // head_dim * heads may differ from the hidden size
  bool rope_divisors;  // rope_freqs.weight
};

// Null if unsupported.
[[nodiscard]] const GgufArchitecture* find_gguf_architecture(std::string_view model_type);

// First one.
[[nodiscard]] const GgufArchitecture* find_gguf_architecture_by_name(std::string_view name);
// "llama, qwen2, ..."
[[nodiscard]] std::string gguf_architecture_names();

// "blk.3.attn_q.weight" for "model.layers.3.self_attn.q_proj.weight"; absent without a counterpart.
[[nodiscard]] std::optional<std::string> gguf_tensor_name(std::string_view hf_name);
// Inverse.
[[nodiscard]] std::optional<std::string> hf_tensor_name(std::string_view gguf_name);

// Of query and key with interleaved RoPE; 0 for other tensors.
[[nodiscard]] std::int64_t rotated_heads(std::string_view hf_name, const nn::ModelConfig& config);

}  // namespace quench
