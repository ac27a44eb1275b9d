#pragma once
// Quantization of a model layer by layer on calibration data.

#include "export/ptq/quantized_layer.h"

namespace quench {

// Quantizes `layers`, all linear layers of the model in its order, as quantize_model() describes. The model holds whole
// parameters. Linear layers compute in high precision until they are quantized.
void quantize_calibrated(nn::CausalLm& model, std::vector<QuantizedLayer>& layers, const QuantizationRules& rules,
                         const QuantizationProgress& progress);

}  // namespace quench
