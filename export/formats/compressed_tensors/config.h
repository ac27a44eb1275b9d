#pragma once
// quantization_config of compressed-tensors (config.json): quantized layers, their schemes and storage formats. Source:
// compressed-tensors 0.20, quantization/quant_args.py, quant_scheme.py and compressors/format.py.

#include <optional>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "export/formats/model_tensors.h"
#include "export/schemes/scheme.h"

namespace quench {

// Names and packing of a layer's tensors.
enum class CompressedForm : std::uint8_t {
  packed_integers,  // weight_packed i32, weight_scale, weight_shape
  integers,         // weight i8, weight_scale
  float8,           // weight f8_e4m3, weight_scale
  mxfp8,            // weight f8_e4m3, weight_scale u8
  mxfp6,            // weight_packed u8, four values in three bytes, weight_scale u8
  mxfp4,            // weight_packed u8, weight_scale u8
  nvfp4,            // weight_packed u8, weight_scale f8_e4m3, weight_global_scale f32
};

struct CompressedGroup {
  CompressedForm form = CompressedForm::packed_integers;
  OperandScheme weights;
  std::optional<OperandScheme> inputs;
  std::vector<std::string> targets;  // "Linear", layer names, "re:" plus a regular expression
};

// Storage form of a scheme; throws unsupported if there is none.
[[nodiscard]] CompressedForm compressed_form(const Scheme& scheme);
// Reason why the format cannot store the scheme, or "".
[[nodiscard]] std::string compressed_problem(const Scheme& scheme);
// Name of the format for this form and, if `inputs`, quantized inputs.
[[nodiscard]] std::string_view format_name(const CompressedForm& form, const OperandScheme& weights, bool inputs);

// Name of a tied LM head, which has no tensor: it must be in the ignore list, or readers look for its quantized values.
[[nodiscard]] std::vector<std::string> tied_heads(const std::vector<ModelTensor>& tensors);
// quantization_config for groups and unquantized layers.
[[nodiscard]] Json compressed_config(const std::vector<CompressedGroup>& groups,
                                     const std::vector<std::string>& ignored);
// True if the config requests KV cache quantization, which is not supported.
[[nodiscard]] bool has_kv_cache_scheme(const Json& config);
// Groups of a quantization_config. Throws unsupported or corrupt naming `source` and the key. Warns of an ignored
// kv_cache_scheme.
[[nodiscard]] std::vector<CompressedGroup> read_compressed_config(const Json& config, std::string_view source);

}  // namespace quench
