#pragma once
// For GPTQ.

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/tensor/tensor.h"

namespace quench {

// U f32 [K,K], upper triangular, U^T U = H^-1; H symmetric positive definite, K * K doubles (overwritten). f64: H = R
// R^T with R upper triangular, U = R^-1. Throws nonfinite naming `name` if not positive definite.
[[nodiscard]] Tensor inverse_factor(std::vector<double>& matrix, std::int64_t size, std::string_view name);

}  // namespace quench
