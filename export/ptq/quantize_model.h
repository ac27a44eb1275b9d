#pragma once
// Quantization rules of a model, PTQ, and a report per layer.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/json/json.h"
#include "export/formats/model_tensors.h"
#include "export/methods/method_table.h"

namespace quench {

// Token sequences for calibration.
struct CalibrationData {
  std::vector<std::vector<std::int32_t>> sequences;
  std::string source;  // for messages and model cards: "128 sequences of 2048 tokens from a.txt"
};

struct QuantizationRules {
  const Scheme* scheme = nullptr;
  // Globs over layer names ("*": any characters); the first match replaces `scheme`. Null scheme: unquantized.
  std::vector<std::pair<std::string, const Scheme*>> rules;
  // Globs of unquantized layers; a rule with the exact name takes precedence.
  std::vector<std::string> exclude = {"lm_head"};
  // Scheme of the embedding table, always RTN; null: unquantized.
  const Scheme* embeddings = nullptr;
  const Quantizer* quantizer = nullptr;  // null: RTN
  MethodOptions options = {};
  // Trained scales f32 [N, groups] of a tensor's integers under `scheme`; undefined: computed from its values. Values
  // are then rounded to nearest. Null: none.
  std::function<Tensor(const ModelTensor&)> scales = nullptr;
  // dtype of high-precision scales; absent: that of the weights.
  std::optional<DType> scale_dtype = std::nullopt;
  // dtype of the weights during quantization, if different from the stored dtype (QAT models keep their training
  // dtype). f32 or bf16.
  std::optional<DType> values_dtype = std::nullopt;
  bool experts = true;  // false: experts stay unquantized regardless of the rules
  std::shared_ptr<const CalibrationData> calibration = nullptr;
  // Gathers the parameters of a unit (nn::CausalLm::units) of a sharded model before calibration runs it. Null:
  // unsharded.
  std::function<void(const std::vector<nn::Parameter*>&)> gather_unit = nullptr;
};

// True if method or schemes require calibration data.
[[nodiscard]] bool needs_calibration(const QuantizationRules& rules);

// "PATTERN=SCHEME"; scheme "none": unquantized. Throws bad_config naming `key`.
[[nodiscard]] std::pair<std::string, const Scheme*> parse_rule(std::string_view text, std::string_view key);

// Throws bad_config for a pattern that matches no layer, or if no layer can be quantized; reads no values.
void require_quantizable(const std::vector<ModelTensor>& tensors, const QuantizationRules& rules);

struct LayerReport {
  std::string layer;
  std::string scheme;        // "" for an unquantized layer
  std::string kept_because;  // reason for no quantization
  double sqnr = 0;           // signal-to-quantization-noise ratio of the weight, dB
  std::uint64_t bytes = 0;   // in the written files (stored_bytes() of export/table/format.h)
  std::uint64_t dense_bytes = 0;
};

// Scheme per linear layer, null for unquantized. Throws like require_quantizable().
[[nodiscard]] std::vector<std::pair<std::string, const Scheme*>> chosen_schemes(const std::vector<ModelTensor>& tensors,
                                                                                const QuantizationRules& rules);

// Distinct schemes of expert layers.
[[nodiscard]] std::vector<const Scheme*> schemes_of_experts(const std::vector<ModelTensor>& tensors,
                                                            const QuantizationRules& rules);

// Arguments: completed, total.
using QuantizationProgress = std::function<void(std::uint64_t, std::uint64_t)>;

// Quantizes linear weights of `tensors` (model_tensors()), including experts, in order, after the embedding table.
// Throws like require_quantizable() and rtn(), and bad_config for missing calibration data.
//
// With calibration data the model runs layer by layer; each layer receives the outputs of the quantized layers before
// it. The model's values are released: it computes with quantized weights afterwards, packed where supported. The same
// holds for `replace` without calibration. A model with gathered units cannot compute afterwards: quantized parameters
// are released.
std::vector<LayerReport> quantize_model(nn::CausalLm& model, std::vector<ModelTensor>& tensors,
                                        const QuantizationRules& rules, const QuantizationProgress& progress = {},
                                        bool replace = false);

// One line per group of layers that differ only in depth, with their count and SQNR range.
[[nodiscard]] std::string to_text(const std::vector<LayerReport>& report);
[[nodiscard]] Json to_json(const std::vector<LayerReport>& report);

}  // namespace quench
