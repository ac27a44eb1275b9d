#pragma once
// Quantization of one linear layer.

#include <span>
#include <string>
#include <vector>

#include "export/ptq/quantize_model.h"

namespace quench {

struct LayerChoice {
  const Scheme* scheme = nullptr;
  std::string kept_because;  // if without a scheme
};

struct QuantizedLayer {
  ModelTensor* tensor = nullptr;
  LayerChoice choice;
  LayerReport report = {};
};

// Layers from `first` that are rows of the same parameter.
[[nodiscard]] std::span<QuantizedLayer> same_parameter(std::vector<QuantizedLayer>& layers, std::size_t first);

// Quantizes the layer, if it has a scheme, and fills its report. `inputs`: for calibrated methods and schemes, else
// null.
void quantize_layer(QuantizedLayer& layer, const QuantizationRules& rules, const InputStatistics* inputs);

// Replaces a parameter's weight in the model by its quantized weights: packed, with input quantization, if all pieces
// of a linear layer have the same scheme; else, and for experts, dequantized.
void use_quantized(nn::CausalLm& model, std::span<const QuantizedLayer> layers);

}  // namespace quench
