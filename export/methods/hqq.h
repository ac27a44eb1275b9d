#pragma once
// HQQ, half-quadratic quantization (Badri and Shaji, "Half-Quadratic Quantization of Large Machine Learning Models",
// 2023): integer scales and zero points against the p-norm (p = 0.7) of the weight error, robust to outliers, by
// alternating shrinkage and least squares. Data-free.

#include <optional>
#include <string_view>

#include "export/schemes/quantized_weight.h"

namespace quench {

// Reason for refusal, or "": integers without floating-point zero points only. Row or group scales are required but not
// checked here.
[[nodiscard]] std::string hqq_problem(const OperandScheme& scheme);

// From rtn()'s scales and zero points, 20 steps. Symmetric schemes adapt the scale, asymmetric ones also the zero point
// (an integer in range). Per group the values of least absolute error are kept, the start included. Throws unsupported
// as hqq_problem(), and as rtn().
[[nodiscard]] QuantizedWeight hqq(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
                                  std::optional<DType> scale_dtype = {});

}  // namespace quench
