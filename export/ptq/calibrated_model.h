#pragma once
// Calibrated quantization of a model, one decoder layer at a time.

#include "export/ptq/quantized_layer.h"

namespace quench {

// `layers`: all linear layers in model order; see quantize_model(). Unsharded. Layers compute unquantized until
// processed.
void quantize_calibrated(nn::CausalLm& model, std::vector<QuantizedLayer>& layers, const QuantizationRules& rules,
                         const QuantizationProgress& progress);

}  // namespace quench
