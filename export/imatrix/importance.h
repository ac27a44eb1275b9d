#pragma once
// Importance of a model's weights by an importance matrix.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "export/formats/model_tensors.h"
#include "export/imatrix/imatrix.h"
#include "nn/spec/model_config.h"

namespace quench {

// GGUF name of a linear layer's weight or of the tensor that holds an expert's; absent: none.
[[nodiscard]] std::optional<std::string> matrix_name(const ModelTensor& tensor, const nn::ModelConfig& config);
// Number of the expert; 0 for other layers.
[[nodiscard]] std::int64_t matrix_of(const ModelTensor& tensor);

class Importance {
 public:
  Importance() = default;  // no matrix
  // `source`: name of the matrix in errors. Throws bad_config for a matrix of another model: layers that it lacks,
  // other numbers of experts, other widths. One line names layers that the matrix lacks.
  Importance(Imatrix matrix, const std::vector<ModelTensor>& tensors, const nn::ModelConfig& config,
             std::string_view source);

  [[nodiscard]] bool defined() const noexcept { return !matrix_.entries.empty(); }
  // Mean squares of the inputs [K]; empty: none. 1 for an expert without data, as in llama-quantize, which is logged.
  [[nodiscard]] std::vector<float> of(const ModelTensor& tensor) const;

 private:
  Imatrix matrix_;
  nn::ModelConfig config_;
};

}  // namespace quench
