#pragma once
// What llama.cpp calls architectures and tensors.

#include <optional>
#include <string>
#include <string_view>

#include "nn/model_config.h"

namespace quench {

struct GgufArchitecture {
  std::string_view model_type;  // Hugging Face's
  std::string_view hf_name;     // of its class
  std::string_view name;        // llama.cpp's
  bool interleaved_rotation;    // rotates neighbouring elements of a head: query and key rows are reordered
  bool bias_is_chosen;          // config.json's attention_bias says whether projections of attention have one
  // What llama.cpp's loader takes.
  bool output_bias;    // of attention's output projection
  bool free_head_dim;  // heads need not add up to the hidden size
  bool rope_divisors;  // rope_freqs.weight
};

// Null for a type that is not supported.
[[nodiscard]] const GgufArchitecture* find_gguf_architecture(std::string_view model_type);

// The first of that name of llama.cpp's.
[[nodiscard]] const GgufArchitecture* find_gguf_architecture_by_name(std::string_view name);
// llama.cpp's: "llama, qwen2, ..."
[[nodiscard]] std::string gguf_architecture_names();

// "blk.3.attn_q.weight" for "model.layers.3.self_attn.q_proj.weight". Absent for a tensor without a counterpart.
[[nodiscard]] std::optional<std::string> gguf_tensor_name(std::string_view hf_name);
// The inverse.
[[nodiscard]] std::optional<std::string> hf_tensor_name(std::string_view gguf_name);

// Heads of the rows that an interleaved rotation reorders: those of query and key projections; 0 for other tensors.
[[nodiscard]] std::int64_t rotated_heads(std::string_view hf_name, const nn::ModelConfig& config);

}  // namespace quench
