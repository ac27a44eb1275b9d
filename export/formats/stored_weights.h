#pragma once
// Weights of a model folder, quantized or not, under Hugging Face names, independent of the format.

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
  bool packed = false;         // quantized: read_packed(); else read()
  std::string dtype_name;      // unquantized dtype, as in the file
  std::optional<DType> dtype;  // unquantized dtype; empty if unsupported
};

class StoredWeights {
 public:
  virtual ~StoredWeights() = default;

  // Tensors of the model, without scales and other auxiliary tensors.
  [[nodiscard]] virtual std::vector<std::string> names() const = 0;
  // Tensors outside the text model (export/formats/text_model.h).
  [[nodiscard]] virtual std::vector<std::string> left_out() const { return {}; }
  [[nodiscard]] virtual std::optional<StoredTensor> find(std::string_view name) const = 0;
  // Stored values, from row `first_row`, as many rows as `out`: a contiguous CPU tensor of the stored dtype.
  virtual void read(std::string_view name, const Tensor& out, std::int64_t first_row = 0) const = 0;
  // On the CPU. Throws corrupt or unsupported naming the tensor.
  [[nodiscard]] virtual PackedMatrix read_packed(std::string_view name) const = 0;
  // Input quantization of the layer with this weight, if any.
  [[nodiscard]] virtual std::optional<OperandScheme> inputs(std::string_view name) const = 0;
  // Integer input division by scales, as in the format's inference engines.
  [[nodiscard]] virtual IntDivision input_division() const { return IntDivision::quotient; }
  // Calibrated input scale (input_scale() of export/schemes/scheme.h), if stored.
  [[nodiscard]] virtual std::optional<float> input_scale(std::string_view /*name*/) const { return std::nullopt; }
};

// Key of config.json with the weights' quantization.
inline constexpr std::string_view kQuantizationConfig = "quantization_config";

}  // namespace quench
