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
#include "export/schemes/scheme.h"

namespace quench {

struct StoredTensor {
  Shape shape;
  bool packed = false;         // codes: read_packed(); else values: read()
  std::string dtype_name;      // of values, as in the file
  std::optional<DType> dtype;  // of values; empty for unsupported types
};

class StoredWeights {
 public:
  virtual ~StoredWeights() = default;

  // Tensors of the model; scales and the like are none.
  [[nodiscard]] virtual std::vector<std::string> names() const = 0;
  // Those of the folder that belong to parts around the model (export/formats/text_model.h).
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
  // The scale of those inputs that calibration found (input_scale() of export/schemes/scheme.h), if one is stored.
  [[nodiscard]] virtual std::optional<float> input_scale(std::string_view /*name*/) const { return std::nullopt; }
};

// The member of config.json that says how weights are quantized.
inline constexpr std::string_view kQuantizationConfig = "quantization_config";

}  // namespace quench
