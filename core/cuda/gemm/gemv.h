#pragma once
// Matrix products with few rows, which only read the weight: the linears of token-by-token generation.

#include "core/ops/gemm.h"

namespace quench::cuda {

// True if gemv takes the product: at most 4 rows of a, b transposed, 16-byte aligned rows.
[[nodiscard]] bool is_gemv(const GemmArgs& args);
void gemv(const GemmArgs& args);

}  // namespace quench::cuda
