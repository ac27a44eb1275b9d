#pragma once
// MoE layers in config.json of the Qwen families.

#include <vector>

#include "nn/spec/config_reader.h"
#include "nn/spec/model_config.h"

namespace quench::nn {

// Qwen: every decoder_sparse_step-th layer is MoE, except those in mlp_only_layers.
// Returns LayerKinds::sparse.
[[nodiscard]] std::vector<bool> read_sparse_layers(ConfigReader& in, const ModelConfig& config);
void write_sparse_layers(const ModelConfig& config, Json& json);

}  // namespace quench::nn
