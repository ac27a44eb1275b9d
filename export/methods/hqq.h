#pragma once
// Half-quadratic quantization (Badri and Shaji, "Half-Quadratic Quantization of Large Machine Learning Models", 2023):
// scales and zero points of integers that minimise the p-norm (p = 0.7) of the weight's error, which forgives outliers,
// by alternating a shrinkage of the error with a least-squares step. No data is needed.

#include <optional>
#include <string_view>

#include "export/schemes/quantized_weight.h"

namespace quench {

// Why a scheme's weights cannot be quantized so, or "": only integers by row or group can.
[[nodiscard]] std::string hqq_problem(const OperandScheme& scheme);

// As rtn(), from whose scales and zero points it starts. Symmetric schemes adapt the scale, asymmetric
// ones also the zero point, which stays an integer of the codes' range. The step with the least
// mean magnitude of errors counts, at worst what a group started with.
[[nodiscard]] QuantizedWeight hqq(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
                                  std::optional<DType> scale_dtype = {});

}  // namespace quench
