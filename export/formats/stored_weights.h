#pragma once
// Weights of a model folder under Hugging Face names, for any format.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "core/tensor/packed_matrix.h"
#include "export/schemes/input_arithmetic.h"
#include "export/schemes/scheme.h"

namespace quench {

struct StoredTensor {
  Shape shape;
  bool packed = false;         // read_packed(); else read()
  std::string dtype_name;      // unquantized, as in the file
  std::optional<DType> dtype;  // unquantized; empty if unsupported
};

class StoredWeights {
 public:
  virtual ~StoredWeights() = default;

  // Without scales and other auxiliary tensors.
  [[nodiscard]] virtual std::vector<std::string> names() const = 0;
  // Outside the text model (text_model.h).
  [[nodiscard]] virtual std::vector<std::string> left_out() const { return {}; }
  [[nodiscard]] virtual std::optional<StoredTensor> find(std::string_view name) const = 0;
  // From row `first_row`, as many rows as `out`: contiguous, CPU, stored dtype.
  virtual void read(std::string_view name, const Tensor& out, std::int64_t first_row = 0) const = 0;
  // A hint that read() of a tensor of names() follows; by default none.
  virtual void prefetch(std::string_view /*name*/) const {}
  // On the CPU. Throws corrupt or unsupported naming the tensor.
  [[nodiscard]] virtual PackedMatrix read_packed(std::string_view name) const = 0;
  // Input scheme of the layer with this weight.
  [[nodiscard]] virtual std::optional<OperandScheme> inputs(std::string_view name) const = 0;
  // As in the format's inference engines.
  [[nodiscard]] virtual InputArithmetic input_arithmetic() const { return {}; }
  // Input scale of export/schemes/scheme.h, if stored.
  [[nodiscard]] virtual std::optional<float> input_scale(std::string_view /*name*/) const { return std::nullopt; }
  // E8M0 scales u8 [N, K / 32] of an unquantized weight [N,K], or of expert `expert` of a fused one, that the file
  // holds as MXFP4 blocks; undefined: it does not.
  [[nodiscard]] virtual Tensor block_scales(std::string_view /*name*/, std::int64_t /*expert*/) const { return {}; }
};

// In config.json.
inline constexpr std::string_view kQuantizationConfig = "quantization_config";

}  // namespace quench
