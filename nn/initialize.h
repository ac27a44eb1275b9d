#pragma once
// Initial values of parameters, keyed by global element.

#include "nn/parameter.h"

namespace quench::nn {

// Fills the local shard: ones, zeros, or normal or uniform with mean 0 and init_std. Draws depend on (seed, Hugging
// Face name of the piece, element within the piece) alone. Runs on the host and copies to the parameter's device.
void initialize_parameter(Parameter& parameter, std::uint64_t seed);

}  // namespace quench::nn
