#pragma once
// Decoder blocks that families of Llama's kind share; each family changes what differs.

#include <vector>

#include "nn/spec/model_config.h"

namespace quench::nn {

// Flags, one a layer; empty: all layers.
struct LayerKinds {
  std::vector<bool> windowed = {};  // ModelConfig::sliding_window
  std::vector<bool> rotated = {};   // RoPE
  std::vector<bool> sparse = {};    // ModelConfig::experts, if there are any
};

// Layer `layer` of the common decoder: RMSNorm, grouped-query attention with RoPE (half-split pairs), SwiGLU or
// experts, by the config's members for all families.
[[nodiscard]] BlockSpec decoder_block(const ModelConfig& config, std::int64_t layer, const LayerKinds& kinds = {});
// All layers, num_hidden_layers of them.
[[nodiscard]] std::vector<BlockSpec> decoder_blocks(const ModelConfig& config, const LayerKinds& kinds = {});

}  // namespace quench::nn
