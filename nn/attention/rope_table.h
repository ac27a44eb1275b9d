#pragma once
// Cosines and sines of rotary position embedding for the positions a run needs.

#include <vector>

#include "core/tensor/tensor.h"
#include "nn/model_config.h"

namespace quench::nn {

struct RopeTable {
  Tensor cos;  // f32 [positions, rotary_dim/2]
  Tensor sin;
};

// Frequencies theta^(-2i/D), scaled as config.rope says (Hugging Face Transformers, modeling_rope_utils): linear
// divides them by the factor; llama3 keeps high frequencies, divides low ones and blends between; yarn blends between
// by index, and multiplies cosines and sines by its attention factor; dynamic raises theta for sequences longer than
// max_position_embeddings, by their length.
//
// The table holds `positions` rows for sequences of `sequence_length` tokens, which only dynamic asks for.
[[nodiscard]] RopeTable make_rope_table(const ModelConfig& config, std::int64_t positions, std::int64_t sequence_length,
                                        Device device);

// What layers without rotation scale their queries by (LayerAttention::temperature), as cosines of rotations whose
// sines are 0; undefined where that is 1 for all `positions`.
[[nodiscard]] RopeTable make_query_scales(const ModelConfig& config, std::int64_t positions, Device device);

// The scaled inverse frequencies, f32 [rotary_dim/2], on the host.
[[nodiscard]] std::vector<float> rope_inverse_frequencies(const ModelConfig& config, std::int64_t sequence_length = 0);

// What cosines and sines are multiplied by: 1 for all types but yarn.
[[nodiscard]] double rope_attention_factor(const RopeScaling& rope);

// The length of sequences that the table for `sequence_length` depends on: tables of equal ones are equal.
[[nodiscard]] std::int64_t rope_effective_length(const ModelConfig& config, std::int64_t sequence_length);

}  // namespace quench::nn
