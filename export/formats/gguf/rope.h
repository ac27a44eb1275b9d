#pragma once
// The rescaling of rotary positions in GGUF files: keys rope.scaling.*, and the tensor rope_freqs.weight of numbers
// that divide frequencies. Source: llama_context's constructor and ggml's rope of llama.cpp. Under type "yarn"
// llama.cpp takes beta_fast 32, beta_slow 1 and whole bounds whatever the file says, and multiplies cosines and sines
// by attn_factor times 0.1 log(factor) + 1; under type "none" by attn_factor alone.

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
  std::vector<std::pair<std::string, GgufValue>> metadata;  // keys after the architecture's prefix
  std::vector<float> divisors;                              // [head_dim / 2], in the order of pairs; empty: none
};

// YaRN of other settings than llama.cpp's is written as divisors under type "none", with keys that tell readers what
// they come from. The type is not dynamic.
[[nodiscard]] GgufRope gguf_rope(const nn::ModelConfig& config);

// Sets rope_theta, and rope_scaling where there is one, of `config`, which has all other members. `divisors` are the
// tensor's, empty without one. Throws unsupported naming what no config.json can say.
void read_gguf_rope(const GgufFields& fields, const std::vector<float>& divisors, Json& config);

}  // namespace quench
