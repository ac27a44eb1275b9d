#pragma once
// Layers with RoPE in config.json (no_rope_layers), for families that omit RoPE in some layers.

#include <vector>

#include "nn/spec/config_reader.h"
#include "nn/spec/model_config.h"

namespace quench::nn {

// Layers with RoPE, as in Transformers' Llama 4 and SmolLM3: no_rope_layers holds 1 for layers WITH rotation; absent or
// empty: every no_rope_layer_interval-th layer (4) has none.
[[nodiscard]] std::vector<bool> read_rotated_layers(ConfigReader& in, std::int64_t count);
void write_rotated_layers(const ModelConfig& config, Json& json);

}  // namespace quench::nn
