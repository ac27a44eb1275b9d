#pragma once
// The quantization_config of compressed-tensors (config.json): which layers are quantized, how, and in which of the
// project's formats their tensors are. Source: compressed-tensors 0.20, quantization/quant_args.py, quant_scheme.py and
// compressors/format.py.

#include <optional>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "export/formats/model_tensors.h"
#include "export/schemes/scheme.h"

namespace quench {

// How the tensors of a layer are called and packed.
enum class CompressedForm : std::uint8_t {
  packed_integers,  // weight_packed i32, weight_scale, weight_shape
  integers,         // weight i8, weight_scale
  float8,           // weight f8_e4m3, weight_scale
  mxfp8,            // weight f8_e4m3, weight_scale u8
  mxfp6,            // weight_packed u8, four codes in three bytes, weight_scale u8
  mxfp4,            // weight_packed u8, weight_scale u8
  nvfp4,            // weight_packed u8, weight_scale f8_e4m3, weight_global_scale f32
};

struct CompressedGroup {
  CompressedForm form = CompressedForm::packed_integers;
  OperandScheme weights;
  std::optional<OperandScheme> inputs;
  std::vector<std::string> targets;  // "Linear", names of layers, "re:" and a regular expression
};

// The form that a scheme is stored in; throws unsupported where there is none.
[[nodiscard]] CompressedForm compressed_form(const Scheme& scheme);
// Why the format cannot hold the scheme, or "".
[[nodiscard]] std::string compressed_problem(const Scheme& scheme);
// Whether its readers compute with that form and these inputs.
[[nodiscard]] std::string_view format_name(const CompressedForm& form, const OperandScheme& weights, bool inputs);

// The head's name if it is tied to the embedding table, and so has no tensor: unless it is among the ignored layers,
// readers look for its codes.
[[nodiscard]] std::vector<std::string> tied_heads(const std::vector<ModelTensor>& tensors);
// The quantization_config for groups and the layers in high precision.
[[nodiscard]] Json compressed_config(const std::vector<CompressedGroup>& groups,
                                     const std::vector<std::string>& ignored);
// Whether keys and values of attention are to be kept in few bits, which is not done here.
[[nodiscard]] bool has_kv_cache_scheme(const Json& config);
// The groups of such an object. Throws unsupported or corrupt naming `source` and the key. Warns of a kv_cache_scheme,
// which is ignored.
[[nodiscard]] std::vector<CompressedGroup> read_compressed_config(const Json& config, std::string_view source);

}  // namespace quench
