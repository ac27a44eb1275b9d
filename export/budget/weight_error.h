#pragma once
// Cost of rounding a weight under a scheme.

#include <span>

#include "export/budget/sensitivity.h"

namespace quench {

// Sum over `weights` of their costs of the errors of RTN under `scheme`, in which GGUF types weight squares by
// `importance` of the columns (empty: 1). `gram` [K,K] of the weight's inputs, f32, CPU (undefined: none) takes the
// place of columns: a row's error e counts e^T gram e / trace(gram) times the sum of columns, as inputs are correlated
// and rounding errors too. Estimated on at most 256 rows at equal distances, whose cost stands for all in proportion to
// the rows' weights. `weight`: [N,K], CPU, finite. Throws like rtn().
struct RoundingArgs {
  const Tensor& weight;
  const OperandScheme& scheme;
  std::string_view name;
  std::span<const ErrorWeights> weights;
  std::optional<DType> scale_dtype;
  std::span<const float> importance = {};
  Tensor gram = {};
};
[[nodiscard]] double rounding_cost(const RoundingArgs& args);

// Without calibration: the same for each row, `columns` (empty: 1) for each column, and a sum of 1 for the weight
// itself in place of its errors: costs are the relative errors of outputs.
[[nodiscard]] ErrorWeights relative_weights(const Tensor& weight, std::span<const float> columns);

}  // namespace quench
