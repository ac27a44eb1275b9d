#pragma once
// What linear layers keep of their inputs for the backward pass, beside what they would keep in high precision.

#include "train/setup/model_setup.h"

namespace quench {

// Fills LayerConversion::kept of the rows of float8 layers. Measured, not derived: a micro-batch of the run goes
// forward on the meta device, once under the run's recipe and once in high precision, and the allocator and the
// owners of x are looked at around every layer. A head's input is kept by the loss.
void measure_saved_inputs(std::vector<recipes::LayerConversion>& conversion, const ResolvedConfig& config,
                          Device target);

}  // namespace quench
