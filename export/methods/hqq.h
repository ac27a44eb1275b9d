#pragma once
// HQQ, half-quadratic quantization (Badri and Shaji, "Half-Quadratic Quantization of Large Machine Learning Models",
// 2023): integer scales and zero points that minimise the p-norm (p = 0.7) of the weight error, robust to outliers, by
// alternating shrinkage and least squares. Data-free.

#include <optional>
#include <string_view>

#include "export/schemes/quantized_weight.h"

namespace quench {

// Reason why the scheme is not supported, or "": integers by row or group only.
[[nodiscard]] std::string hqq_problem(const OperandScheme& scheme);

// Starts from rtn()'s scales and zero points. Symmetric schemes adapt the scale, asymmetric ones also the zero point
// (an integer in range). The iteration with the smallest mean absolute error per group is kept, including the start.
[[nodiscard]] QuantizedWeight hqq(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
                                  std::optional<DType> scale_dtype = {});

}  // namespace quench
