#pragma once
// kv_b_proj of latent attention [heads * (nope + value), rank] as llama.cpp has it: attn_k_b [heads, rank, nope],
// transposed for each head, and attn_v_b [heads, value, rank].

#include <string>
#include <string_view>

#include "core/tensor/tensor.h"
#include "nn/spec/block_spec.h"

namespace quench {

inline constexpr std::string_view kHfKeyValue = ".self_attn.kv_b_proj.weight";
inline constexpr std::string_view kGgufKeys = ".attn_k_b.weight", kGgufValues = ".attn_v_b.weight";

// Contiguous, in the dtype of kv_b.
[[nodiscard]] Tensor latent_keys(const Tensor& kv_b, const nn::MlaSpec& mla, std::int64_t heads);
[[nodiscard]] Tensor latent_values(const Tensor& kv_b, const nn::MlaSpec& mla, std::int64_t heads);
// Inverse of both.
[[nodiscard]] Tensor joined_latent(const Tensor& keys, const Tensor& values, const nn::MlaSpec& mla);

}  // namespace quench
