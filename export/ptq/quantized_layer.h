#pragma once
// One linear layer on its way from its weight to codes.

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

// Those from `first` on that are rows of one parameter.
[[nodiscard]] std::span<QuantizedLayer> same_parameter(std::vector<QuantizedLayer>& layers, std::size_t first);

// Quantizes the layer, if a scheme was chosen, and fills its report. `inputs` for calibrated methods and schemes, else
// null.
void quantize_layer(QuantizedLayer& layer, const QuantizationRules& rules, const InputStatistics* inputs);

// The model computes with the quantized weights of a parameter from now on: from their codes, inputs rounded as the
// scheme says, where all pieces of a linear layer agree; else, and for experts, with their values.
void use_quantized(nn::CausalLm& model, std::span<const QuantizedLayer> layers);

}  // namespace quench
