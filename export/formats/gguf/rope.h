#pragma once
// RoPE scaling: keys rope.scaling.* and frequency divisors rope_freqs.weight (llama.cpp: llama_context's constructor,
// ggml's rope). "yarn": always beta_fast 32, beta_slow 1, truncated bounds; cos and sin times attn_factor * (0.1
// log(factor) + 1). "none": times attn_factor.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "export/formats/gguf/metadata.h"
#include "export/formats/gguf/metadata_fields.h"
#include "nn/spec/model_config.h"

namespace quench {

inline constexpr std::string_view kRopeDivisors = "rope_freqs.weight";
// longrope
inline constexpr std::string_view kShortDivisors = "rope_factors_short.weight",
                                  kLongDivisors = "rope_factors_long.weight";

// Tensors of divisors, f32 [rotated elements / 2], by pair; or empty.
struct GgufDivisors {
  std::vector<float> all;              // kRopeDivisors
  std::vector<float> shorter, longer;  // kShortDivisors, kLongDivisors: up to the original length, and beyond
};

// Key of GgufArchitecture::unrounded_yarn, ignored by llama.cpp: config.json's truncate.
inline constexpr std::string_view kGgufYarnTruncated = "rope.scaling.yarn_truncate";

struct GgufRope {
  std::vector<std::pair<std::string, GgufValue>> metadata;  // without the architecture's prefix
  GgufDivisors divisors;
  bool rounded = false;  // llama.cpp rounds YaRN's bounds (GgufArchitecture::unrounded_yarn), the model does not
};

// YaRN with other settings is written as divisors under type "none", with keys to restore it. Not dynamic.
[[nodiscard]] GgufRope gguf_rope(const nn::ModelConfig& config);

// Sets rope_theta and rope_scaling, if any, of the otherwise complete `config`. Throws unsupported naming settings
// without a config.json equivalent.
void read_gguf_rope(const GgufFields& fields, const GgufDivisors& divisors, Json& config);

}  // namespace quench
