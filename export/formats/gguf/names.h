#pragma once
// Architecture and tensor names of llama.cpp, by the table of architectures.

#include <optional>
#include <string>
#include <string_view>

#include "export/formats/gguf/architectures/architecture.h"
#include "export/formats/gguf/head_parser.h"

namespace quench {

// First one with the file's general.architecture, and experts if the file has them; null: none.
[[nodiscard]] const GgufArchitecture* stored_gguf_architecture(const GgufHead& head);
// llama.cpp names: "llama, qwen2, ..."
[[nodiscard]] std::string gguf_architecture_names();

// A norm's weight, by its Hugging Face name.
[[nodiscard]] bool is_norm(std::string_view hf_name);

// "blk.3.attn_q.weight" for "model.layers.3.self_attn.q_proj.weight". Absent without a counterpart.
[[nodiscard]] std::optional<std::string> gguf_tensor_name(std::string_view hf_name,
                                                          const GgufArchitecture& architecture);
// Inverse of gguf_tensor_name.
[[nodiscard]] std::optional<std::string> hf_tensor_name(std::string_view gguf_name,
                                                        const GgufArchitecture& architecture);

// Heads of query and key with interleaved RoPE; 0 for other tensors.
[[nodiscard]] std::int64_t rotated_heads(std::string_view hf_name, const nn::ModelConfig& config);

}  // namespace quench
