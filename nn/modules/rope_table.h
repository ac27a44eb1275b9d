#pragma once
// RoPE tables: cosines and sines by position, with the scalings of Hugging Face Transformers.

#include <vector>

#include "core/tensor/tensor.h"
#include "nn/spec/model_config.h"

namespace quench::nn {

struct RopeTable {
  Tensor cos;  // f32 [positions, RotarySpec::dim / 2]
  Tensor sin;
};

// By layer. RoPE, or the query scales of a layer without (QueryTemperature), as cosines with zero sines; undefined:
// none.
using LayerTables = std::vector<RopeTable>;

// Frequencies theta^(-2i/D), as its scaling says (Hugging Face Transformers, modeling_rope_utils): linear divides by
// the factor; llama3 keeps high frequencies, divides low ones and blends between; yarn blends by index and multiplies
// cosines and sines by its attention factor; dynamic raises theta by `sequence_length`; longrope divides by its short
// or long factors, as `sequence_length` says, and multiplies cosines and sines.
[[nodiscard]] RopeTable make_rope_table(const RotarySpec& rotary, std::int64_t positions, std::int64_t sequence_length,
                                        Device device);

// Query scales of layers without RoPE, as cosines with zero sines [positions, head_dim/2]; undefined if 1 for all
// `positions`.
[[nodiscard]] RopeTable make_query_scales(const QueryTemperature& temperature, std::int64_t head_dim,
                                          std::int64_t positions, Device device);

// f32 [RotarySpec::dim / 2], on the host.
[[nodiscard]] std::vector<float> rope_inverse_frequencies(const RotarySpec& rotary, std::int64_t sequence_length = 0);

// Factor on cosines and sines: 1 except for yarn and longrope.
[[nodiscard]] double rope_attention_factor(const RopeScaling& rope);

// Longest sequence with the table of all shorter ones; the largest int64 unless the scaling is dynamic or longrope.
[[nodiscard]] std::int64_t rope_longest_common(const RotarySpec& rotary);

// Tables of equal effective lengths are equal.
[[nodiscard]] std::int64_t rope_effective_length(const RotarySpec& rotary, std::int64_t sequence_length);

}  // namespace quench::nn
