#pragma once
// Which layers of a model are quantized how, and a row of report for each.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/json/json.h"
#include "export/formats/model_tensors.h"
#include "export/methods/method_table.h"

namespace quench {

// Token sequences that the model runs on, to see the inputs of its layers.
struct CalibrationData {
  std::vector<std::vector<std::int32_t>> sequences;
  std::string source;  // for messages and model cards: "128 sequences of 2048 tokens from a.txt"
};

struct QuantizationRules {
  const Scheme* scheme = nullptr;
  // Globs over layer names ("*" matches any run of characters): the first rule that matches takes the place of
  // `scheme`; a rule without a scheme keeps the layer in high precision.
  std::vector<std::pair<std::string, const Scheme*>> rules;
  // Globs of layers that stay in high precision, unless a rule gives their name in full.
  std::vector<std::string> exclude = {"lm_head"};
  // Of the embedding table, which the other rules are not for; null: it stays in high precision. Always to nearest.
  const Scheme* embeddings = nullptr;
  const Quantizer* quantizer = nullptr;  // null: round to nearest
  MethodOptions options = {};
  // Of a tensor under `scheme`: the scales f32 [N, groups] of its integer codes, where training has found them;
  // undefined: they follow from its values. Codes are the nearest then. Null: none are known.
  std::function<Tensor(const ModelTensor&)> scales = nullptr;
  // Of scales in high precision; absent: that of the weights.
  std::optional<DType> scale_dtype = std::nullopt;
  // In which weights are rounded, and their scales found, where that is not the dtype that they are stored in: a model
  // that was trained for codes keeps the values that it was trained with. f32 or bf16.
  std::optional<DType> values_dtype = std::nullopt;
  bool experts = true;  // false: those of a mixture stay in high precision, whatever the rules say
  std::shared_ptr<const CalibrationData> calibration = nullptr;
  // Of a model that several processes hold in parts: makes the parameters of a unit (nn::CausalLm::units) whole here,
  // before calibration runs the unit. Null: all are.
  std::function<void(const std::vector<nn::Parameter*>&)> gather_unit = nullptr;
};

// Whether method or schemes need calibration data.
[[nodiscard]] bool needs_calibration(const QuantizationRules& rules);

// "PATTERN=SCHEME", where the scheme "none" keeps layers in high precision. Throws bad_config naming `key`.
[[nodiscard]] std::pair<std::string, const Scheme*> parse_rule(std::string_view text, std::string_view key);

// Throws bad_config as quantize_model() does, before any value is read: for a pattern that matches no layer, and where
// no layer can be quantized.
void require_quantizable(const std::vector<ModelTensor>& tensors, const QuantizationRules& rules);

struct LayerReport {
  std::string layer;
  std::string scheme;        // "" for a layer in high precision
  std::string kept_because;  // why it is
  double sqnr = 0;           // signal to quantization noise of the weight, dB
  std::uint64_t bytes = 0;   // in the files, once they are written (stored_bytes() of export/table/format.h)
  std::uint64_t dense_bytes = 0;
};

// The scheme of each linear layer under the rules, null for one in high precision. Throws as require_quantizable().
[[nodiscard]] std::vector<std::pair<std::string, const Scheme*>> chosen_schemes(const std::vector<ModelTensor>& tensors,
                                                                                const QuantizationRules& rules);

// The schemes under which layers of experts are quantized, each once.
[[nodiscard]] std::vector<const Scheme*> schemes_of_experts(const std::vector<ModelTensor>& tensors,
                                                            const QuantizationRules& rules);

// Told done and all.
using QuantizationProgress = std::function<void(std::uint64_t, std::uint64_t)>;

// Quantizes the linear layers' weights of `tensors` (model_tensors()), those of experts included, one after the other,
// and the embedding table before them.
// Throws bad_config for a pattern that matches no layer, where no layer is quantized, and where calibration data are
// needed and absent; what rtn() throws.
//
// With calibration data the model runs on them layer by layer: each layer sees what the quantized layers before it make
// of the data. The model gives up its values on the way: it computes with the quantized ones afterwards, from their
// codes where it can. So does a model with `replace`, without calibration. A model whose units are brought here
// computes no more: what has become codes gives up its memory.
std::vector<LayerReport> quantize_model(nn::CausalLm& model, std::vector<ModelTensor>& tensors,
                                        const QuantizationRules& rules, const QuantizationProgress& progress = {},
                                        bool replace = false);

// One line for layers that differ in nothing but their place in the stack, with their number and the range of their
// signal to noise.
[[nodiscard]] std::string to_text(const std::vector<LayerReport>& report);
[[nodiscard]] Json to_json(const std::vector<LayerReport>& report);

}  // namespace quench
