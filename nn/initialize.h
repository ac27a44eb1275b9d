#pragma once

#include "nn/parameter.h"

namespace quench::nn {

// Fills the local shard. Draws depend only on (seed, Hugging Face name of the piece, element within the piece). Host
// computation, copied to the parameter's device.
void initialize_parameter(Parameter& parameter, std::uint64_t seed);

}  // namespace quench::nn
