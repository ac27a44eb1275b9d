#pragma once
// Quantization of one linear layer.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "export/ptq/quantize_model.h"

namespace quench {

struct LayerChoice {
  const Scheme* scheme = nullptr;
  std::string kept_because;          // without a scheme
  const Scheme* unfit = nullptr;     // which its shape does not suit
  const Scheme* replaced = nullptr;  // whose place `scheme` takes (fitting_scheme()); null: none
};

struct QuantizedLayer {
  ModelTensor* tensor = nullptr;
  LayerChoice choice;
  LayerReport report = {};
  std::optional<float> shared_amax = {};        // share_amax()
  std::optional<float> input_amax = {};         // bound of a static input scale; absent: that of the statistics
  std::shared_ptr<QuantizedWeight> tuned = {};  // by tune_block()
};

// From `first`: rows of one parameter.
[[nodiscard]] std::span<QuantizedLayer> same_parameter(std::vector<QuantizedLayer>& layers, std::size_t first);

// Expert of a weight; 0 for weights of other layers.
[[nodiscard]] std::int64_t expert_of(const ModelTensor& tensor);

// Sets `shared_amax` of the NVFP4 layers among `group` (same_parameter()): the amax of all of them, for experts of
// those of one expert. Engines decode the parts of a fused layer under one global scale, and QAT simulates one. All
// zero: 0. Reads values; after fusion of channel scales.
void share_amax(std::span<QuantizedLayer> group, const QuantizationRules& rules);

// Under the scheme: in rules.values_dtype, times the file's factor.
[[nodiscard]] Tensor weight_of(const QuantizedLayer& layer, const QuantizationRules& rules);

// Also fills the report. A tuned weight is taken as it is. `inputs`: for calibrated methods and schemes, else null.
// `importance`: of the columns [K]; empty: none.
void quantize_layer(QuantizedLayer& layer, const QuantizationRules& rules, const InputStatistics* inputs,
                    std::span<const float> importance = {});

// In the model: packed, with input quantization, if all pieces of a linear layer have the same scheme; else, and for
// experts, dequantized.
void use_quantized(nn::CausalLm& model, std::span<const QuantizedLayer> layers);

}  // namespace quench
