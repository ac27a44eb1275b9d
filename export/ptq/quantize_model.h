#pragma once
// PTQ of a model: rules, report per layer.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/json/json.h"
#include "export/formats/model_tensors.h"
#include "export/methods/method_table.h"

namespace quench {

// Token sequences that calibration runs the model on.
struct CalibrationData {
  std::vector<std::vector<std::int32_t>> sequences;
  std::string source;  // "128 sequences of 2048 tokens from a.txt"
};

// Scheme of each layer, method and data of a PTQ.
struct QuantizationRules {
  const Scheme* scheme = nullptr;
  // Globs over layer names ("*": any characters); the first match replaces `scheme`; null: unquantized.
  std::vector<std::pair<std::string, const Scheme*>> rules;
  // Schemes of layers under `scheme->mix` (choose_mixed_types(), export/table/mixed_types.h), before rules.
  std::map<std::string, const Scheme*, std::less<>> mixed = {};
  // `mixed` is a plan: it names layers of the model alone, and others stay in high precision.
  bool planned = false;
  // Unquantized; a rule with the exact name takes precedence.
  std::vector<std::string> exclude = {"lm_head"};
  // Embedding table, RTN; null: unquantized.
  const Scheme* embeddings = nullptr;
  const Quantizer* quantizer = nullptr;  // null: RTN
  MethodOptions options = {};
  // Trained scales f32 [N, groups] of integers under `scheme`, for RTN; undefined: by the values. Null: none.
  std::function<Tensor(const ModelTensor&)> scales = nullptr;
  // High-precision scales; absent: the weights'.
  std::optional<DType> scale_dtype = std::nullopt;
  // Weights in quantization, f32 or bf16; absent: stored dtype (QAT models keep their training dtype).
  std::optional<DType> values_dtype = std::nullopt;
  Device device = {};   // where kernels that quantize weights may run; results do not depend on it
  bool experts = true;  // false: unquantized regardless of rules
  // Optional: reason why a layer is unquantized regardless of rules, or "".
  std::string_view (*kept)(const ModelTensor& tensor) = nullptr;
  // Block scales of a weight that was read from MXFP4 blocks (StoredWeights::block_scales); undefined: of others. Null:
  // none.
  std::function<Tensor(const ModelTensor&)> block_scales = nullptr;
  std::shared_ptr<const CalibrationData> calibration = nullptr;
  // Importance matrix of GGUF types (uses_importance()): a file, or that of the calibration data, which is written to
  // `save_imatrix` if named. `with_importance`: there will be one of the two.
  std::string imatrix = {}, save_imatrix = {};
  bool with_importance = false;
  // Gathers a unit (nn::CausalLm::units) before calibration runs it. Null: unsharded.
  std::function<void(const std::vector<nn::Parameter*>&)> gather_unit = nullptr;
};

// By method or schemes.
[[nodiscard]] bool needs_calibration(const QuantizationRules& rules);

// GGUF types under RTN: an importance matrix has an effect.
[[nodiscard]] bool uses_importance(const QuantizationRules& rules);

// "PATTERN=SCHEME"; "none": unquantized. Throws bad_config naming `key`.
[[nodiscard]] std::pair<std::string, const Scheme*> parse_rule(std::string_view text, std::string_view key);

// Throws bad_config for a pattern without layers, or without any quantizable layer; reads no values.
void require_quantizable(const std::vector<ModelTensor>& tensors, const QuantizationRules& rules);

// Outcome for one layer.
struct LayerReport {
  std::string layer;
  std::string scheme;        // "": unquantized
  std::string kept_because;  // reason for no quantization
  double sqnr = 0;           // signal to noise of the weight, dB
  std::uint64_t bytes = 0;   // written (stored_bytes() of export/table/format.h)
  std::uint64_t dense_bytes = 0;
};

// Null: unquantized. Throws like require_quantizable().
[[nodiscard]] std::vector<std::pair<std::string, const Scheme*>> chosen_schemes(const std::vector<ModelTensor>& tensors,
                                                                                const QuantizationRules& rules);

// Linear layer with the scheme that the rules give it, null: none.
struct LayerFit {
  const Scheme* scheme = nullptr;
  Shape shape;
  std::uint64_t bytes = 0;  // in high precision
  std::string problem;      // reason in the shape why the layer stays in high precision; or ""
};
// In the order of `tensors`, without embeddings.
[[nodiscard]] std::vector<LayerFit> layer_fits(const std::vector<ModelTensor>& tensors, const QuantizationRules& rules);

// Distinct.
[[nodiscard]] std::vector<const Scheme*> schemes_of_experts(const std::vector<ModelTensor>& tensors,
                                                            const QuantizationRules& rules);

// Completed, total.
using QuantizationProgress = std::function<void(std::uint64_t, std::uint64_t)>;

// Linear weights of `tensors` (model_tensors()), with experts, in order, after the embedding table. Throws like
// require_quantizable() and rtn(), and bad_config for missing calibration data.
//
// Methods and schemes that need calibration run the model by layer on it, each on outputs of quantized layers. An
// importance matrix is computed before, of the unquantized model, or read: throws as read_imatrix() and Importance, and
// bad_config for a layer whose type needs one and that it lacks. After calibration the model's values are released:
// it computes with quantized weights afterwards, packed where supported; also for `replace` without calibration. A
// model with gathered units cannot compute afterwards: quantized parameters are released.
std::vector<LayerReport> quantize_model(nn::CausalLm& model, std::vector<ModelTensor>& tensors,
                                        const QuantizationRules& rules, const QuantizationProgress& progress = {},
                                        bool replace = false);

// One line per group of layers that differ only in depth: count, SQNR range.
[[nodiscard]] std::string to_text(const std::vector<LayerReport>& report);
// Array with an object per layer.
[[nodiscard]] Json to_json(const std::vector<LayerReport>& report);

}  // namespace quench
