#pragma once
// RoPE scaling in GGUF: keys rope.scaling.* and the tensor rope_freqs.weight of frequency divisors. Source:
// llama_context's constructor and ggml's rope of llama.cpp. Type "yarn": llama.cpp always uses beta_fast 32, beta_slow
// 1 and truncated bounds, and multiplies cos and sin by attn_factor * (0.1 log(factor) + 1). Type "none": by
// attn_factor.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "export/formats/gguf/metadata.h"
#include "export/formats/gguf/metadata_fields.h"
#include "nn/model_config.h"

namespace quench {

inline constexpr std::string_view kRopeDivisors = "rope_freqs.weight";

struct GgufRope {
  std::vector<std::pair<std::string, GgufValue>> metadata;  // keys without the architecture's prefix
  std::vector<float> divisors;                              // [head_dim / 2], by pair; empty: none
};

// YaRN with settings other than llama.cpp's is written as divisors under type "none", with keys for readers to restore
// it. The type must not be dynamic.
[[nodiscard]] GgufRope gguf_rope(const nn::ModelConfig& config);

// Sets rope_theta and, if present, rope_scaling of `config`, whose other keys are complete. `divisors`: values of the
// tensor, or empty. Throws unsupported naming settings without a config.json equivalent.
void read_gguf_rope(const GgufFields& fields, const std::vector<float>& divisors, Json& config);

}  // namespace quench
