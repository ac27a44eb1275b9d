#pragma once
// Layer-by-layer quantization of a model with calibration data.

#include "export/ptq/quantized_layer.h"

namespace quench {

// Quantizes `layers`, all linear layers in model order, as quantize_model() describes. Parameters must be unsharded.
// Linear layers compute unquantized until they are processed.
void quantize_calibrated(nn::CausalLm& model, std::vector<QuantizedLayer>& layers, const QuantizationRules& rules,
                         const QuantizationProgress& progress);

}  // namespace quench
