#pragma once
// Quantization of one linear layer.

#include <span>
#include <string>
#include <vector>

#include "export/ptq/quantize_model.h"

namespace quench {

struct LayerChoice {
  const Scheme* scheme = nullptr;
  std::string kept_because;  // without a scheme
};

struct QuantizedLayer {
  ModelTensor* tensor = nullptr;
  LayerChoice choice;
  LayerReport report = {};
};

// From `first`: rows of one parameter.
[[nodiscard]] std::span<QuantizedLayer> same_parameter(std::vector<QuantizedLayer>& layers, std::size_t first);

// Also fills the report. `inputs`: for calibrated methods and schemes, else null.
void quantize_layer(QuantizedLayer& layer, const QuantizationRules& rules, const InputStatistics* inputs);

// In the model: packed, with input quantization, if all pieces of a linear layer have the same scheme; else, and for
// experts, dequantized.
void use_quantized(nn::CausalLm& model, std::span<const QuantizedLayer> layers);

}  // namespace quench
