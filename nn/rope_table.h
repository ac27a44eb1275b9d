#pragma once
// Cosines and sines of rotary position embedding for the positions a run needs.

#include <vector>

#include "core/tensor.h"
#include "nn/model_config.h"

namespace quench::nn {

struct RopeTable {
  Tensor cos;  // f32 [positions, head_dim/2]
  Tensor sin;
};

// Frequencies theta^(-2i/D), scaled as config.rope says: linear divides them by the factor; llama3 keeps high
// frequencies, divides low ones and blends between (Hugging Face Transformers, modeling_rope_utils).
[[nodiscard]] RopeTable make_rope_table(const ModelConfig& config, std::int64_t positions, Device device);

// The scaled inverse frequencies, f32 [head_dim/2], on the host.
[[nodiscard]] std::vector<float> rope_inverse_frequencies(const ModelConfig& config);

}  // namespace quench::nn
