#pragma once
// Which layers of a model are quantized how, and a row of report for each.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/json/json.h"
#include "export/model_tensors.h"
#include "export/quantizer.h"

namespace quench {

struct QuantizationRules {
  const Scheme* scheme = nullptr;
  // Globs over layer names ("*" matches any run of characters): the first rule that matches takes the place of
  // `scheme`; a rule without a scheme keeps the layer in high precision.
  std::vector<std::pair<std::string, const Scheme*>> rules;
  std::vector<std::string> exclude = {"lm_head"};
  const Quantizer* quantizer = nullptr;  // null: round to nearest
  // Of scales in high precision; absent: that of the weights.
  std::optional<DType> scale_dtype = std::nullopt;
};

// "PATTERN=SCHEME", where the scheme "none" keeps layers in high precision. Throws bad_config naming `key`.
[[nodiscard]] std::pair<std::string, const Scheme*> parse_rule(std::string_view text, std::string_view key);

struct LayerReport {
  std::string layer;
  std::string scheme;        // "" for a layer in high precision
  std::string kept_because;  // why it is
  double sqnr = 0;           // signal to quantization noise of the weight, dB
  std::uint64_t bytes = 0;   // stored
  std::uint64_t dense_bytes = 0;
};

// Quantizes the linear layers' weights of `tensors` one after the other. Throws bad_config for a pattern that matches
// no layer or where no layer is quantized; what round_to_nearest throws. `progress`, if set, is told done and all.
std::vector<LayerReport> quantize_model(std::vector<ModelTensor>& tensors, const QuantizationRules& rules,
                                        const std::function<void(std::uint64_t, std::uint64_t)>& progress = {});

// One line a layer.
[[nodiscard]] std::string to_text(const std::vector<LayerReport>& report);
[[nodiscard]] Json to_json(const std::vector<LayerReport>& report);

}  // namespace quench
