#pragma once
// quantization_config of compressed-tensors 0.20 (quantization/quant_args.py, quant_scheme.py, compressors/format.py):
// quantized layers, schemes, storage formats.

#include <optional>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "export/formats/model_tensors.h"
#include "export/schemes/scheme.h"

namespace quench {

// Tensors of a layer.
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
  std::vector<std::string> targets;  // "Linear", layer names, "re:" and a regular expression
};

// Throws unsupported if there is none.
[[nodiscard]] CompressedForm compressed_form(const Scheme& scheme);
// Reason why the scheme cannot be stored, or "".
[[nodiscard]] std::string compressed_problem(const Scheme& scheme);
// `inputs`: they are quantized.
[[nodiscard]] std::string_view format_name(const CompressedForm& form, const OperandScheme& weights, bool inputs);

// A tied LM head has no tensor: without an entry in the ignore list readers look for quantized values.
[[nodiscard]] std::vector<std::string> tied_heads(const std::vector<ModelTensor>& tensors);
// Without groups: format "dense".
[[nodiscard]] Json compressed_config(const std::vector<CompressedGroup>& groups,
                                     const std::vector<std::string>& ignored, const Json& kv_cache_scheme = {});
// Groups of weights and inputs (export/kv_cache has the cache's scheme). Throws unsupported or corrupt naming `source`
// and key.
[[nodiscard]] std::vector<CompressedGroup> read_compressed_config(const Json& config, std::string_view source);

}  // namespace quench
