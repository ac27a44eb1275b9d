#pragma once
// Linear-layer inputs saved for the backward pass, in addition to the high-precision case.

#include "train/session/model_setup.h"

namespace quench {

// Fills LayerConversion::kept of float8 layers. Measured: one micro-batch runs forward on the meta device under the
// recipe and in high precision, inspecting allocator and owners of x around every layer. The head's input is saved by
// the loss.
void measure_saved_inputs(std::vector<recipes::LayerConversion>& conversion, const ResolvedConfig& config,
                          Device target);

}  // namespace quench
