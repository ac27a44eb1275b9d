#pragma once
// The weights of a model folder, dense or quantized, under Hugging Face's names, whatever the format.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "core/ops/quantize/quantize_int.h"
#include "core/tensor/packed_matrix.h"
#include "export/scheme.h"

namespace quench {

struct StoredTensor {
  Shape shape;
  bool packed = false;         // codes: read_packed(); else values: read()
  std::string dtype_name;      // of values, as in the file
  std::optional<DType> dtype;  // of values; empty for types that nobody here computes with
};

class StoredWeights {
 public:
  virtual ~StoredWeights() = default;

  // Tensors of the model; scales and the like are none.
  [[nodiscard]] virtual std::vector<std::string> names() const = 0;
  // Those of the folder that belong to parts around the model (export/text_model.h).
  [[nodiscard]] virtual std::vector<std::string> left_out() const { return {}; }
  [[nodiscard]] virtual std::optional<StoredTensor> find(std::string_view name) const = 0;
  // Values as stored, rows from `first_row` on and as many as `out` has, a contiguous CPU tensor of that dtype.
  virtual void read(std::string_view name, const Tensor& out, std::int64_t first_row = 0) const = 0;
  // On the CPU. Throws corrupt or unsupported naming the tensor.
  [[nodiscard]] virtual PackedMatrix read_packed(std::string_view name) const = 0;
  // How the input of the layer with this weight is quantized, if it is.
  [[nodiscard]] virtual std::optional<OperandScheme> inputs(std::string_view name) const = 0;
  // How the programs that the format is for divide integer inputs by their scales.
  [[nodiscard]] virtual IntDivision input_division() const { return IntDivision::quotient; }
  // The scale of those inputs that calibration found (input_scale() of export/scheme.h), if one is stored.
  [[nodiscard]] virtual std::optional<float> input_scale(std::string_view /*name*/) const { return std::nullopt; }
};

// The member of config.json that says how weights are quantized.
inline constexpr std::string_view kQuantizationConfig = "quantization_config";
// A folder below may also be a path to a GGUF file (is_gguf_path() of export/gguf/reader.h): config.json is the one in
// its folder, if there is one.
//
// The GGUF file that holds a folder's weights; empty where safetensors do, or nothing does. Throws bad_config for
// several.
[[nodiscard]] std::filesystem::path stored_gguf_file(const std::filesystem::path& folder);
// Whether the folder's weights are quantized: by `config`, its config.json, or by the blocks of its GGUF file.
[[nodiscard]] bool is_quantized(const std::filesystem::path& folder, const Json& config);
// The file that describes the model of a folder: config.json, or a GGUF file that stands alone. Empty where there is
// neither.
[[nodiscard]] std::filesystem::path stored_config_file(const std::filesystem::path& folder);
// The folder's config.json, or what the metadata of its GGUF file amount to where that stands alone. Absent where there
// is neither. Of a model that reads images too, what its text model would have (export/text_model.h).
[[nodiscard]] std::optional<Json> stored_model_config(const std::filesystem::path& folder);
// By the quantization_config of `config`, the folder's config.json; without one safetensors, else a GGUF file. Throws
// unsupported for methods that are not known, not_found without weights, what the format's reader throws.
[[nodiscard]] std::unique_ptr<StoredWeights> open_stored_weights(const std::filesystem::path& folder,
                                                                 const Json& config);

}  // namespace quench
