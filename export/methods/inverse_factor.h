#pragma once
// The triangular factor of an inverse, as GPTQ needs it.

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/tensor/tensor.h"

namespace quench {

// U f32 [K,K], upper triangular with zeros below, with U^T U = H^-1, for a symmetric positive definite H given as K * K
// doubles, which are overwritten. Computed in f64: H = R R^T with R upper triangular, and U = R^-1. Throws nonfinite
// naming `name` where H is not positive definite.
[[nodiscard]] Tensor inverse_factor(std::vector<double>& matrix, std::int64_t size, std::string_view name);

}  // namespace quench
