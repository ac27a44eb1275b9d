#pragma once
// RoPE settings of a run in place of a model's: the base frequency and scaling that config.json has, in any of its
// spellings, are replaced as a whole, so that no member of the model's own settings remains in force.

#include <cstdint>
#include <string>
#include <vector>

#include "nn/spec/model_config.h"

namespace quench::nn {

// Length of the sequences before RoPE scaling: original_max_position_embeddings of llama3, yarn and longrope,
// max_position_embeddings over the factor of linear, else max_position_embeddings.
[[nodiscard]] std::int64_t unscaled_length(const ModelConfig& config);

// Sets the members of `settings` in `config`, a complete config.json or an empty object. Further, for rope_scaling or
// rope_parameters (without layer types) over a model:
// - the model's rope_theta and partial_rotary_factor stay unless the settings have them,
// - original_max_position_embeddings of llama3, yarn and longrope is unscaled_length() of the model unless given,
// - max_position_embeddings is the factor times that length unless given; unscaled_length() for default and for
//   dynamic, whose reader multiplies; the model's without a factor.
// rope_theta alone replaces the model's in each spelling. Layers with a RoPE of their own (local_rope) keep it.
void override_rope(const Json& settings, Json& config);

// Faults of rope_scaling or rope_parameters of `settings` over `config`, "factor: 0.5 is below 1". None for a model
// that cannot be read, which parse_model_config() reports.
[[nodiscard]] std::vector<std::string> rope_override_faults(const Json& settings, const Json& config);

// True if both rotate equal positions of sequences of all lengths alike.
[[nodiscard]] bool same_ropes(const ModelConfig& a, const ModelConfig& b);

}  // namespace quench::nn
