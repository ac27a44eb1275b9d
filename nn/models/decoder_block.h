#pragma once
// Decoder block that families of Llama's kind share; each family changes what differs.

#include "nn/spec/model_config.h"

namespace quench::nn {

// Block of the common decoder: RMSNorm, grouped-query attention with RoPE (half-split pairs), SwiGLU or experts, by the
// config's members for all families. Families change what differs.
[[nodiscard]] BlockSpec decoder_block(const ModelConfig& config, std::int64_t layer);

}  // namespace quench::nn
