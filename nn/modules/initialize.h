#pragma once
// Initial values of parameters, independent of sharding and device.

#include "nn/modules/parameter.h"
#include "nn/spec/model_config.h"

namespace quench::nn {

// Fills the local shard on its device. Draws depend only on (seed, Hugging Face name of the piece, element within the
// piece): the same bits on every device.
void initialize_parameter(Parameter& parameter, std::uint64_t seed);

// Standard deviation of projections into the residual stream: smaller, so that its variance is independent of depth
// (Radford et al., 2019, section 2.3).
[[nodiscard]] float residual_init_std(const ModelConfig& config);

}  // namespace quench::nn
