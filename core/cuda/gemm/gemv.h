#pragma once
// GEMV for decode, bound by reading the weight.

#include "core/ops/gemm.h"

namespace quench::cuda {

// Limits: 4 rows of a, b transposed, 16-byte aligned rows.
[[nodiscard]] bool is_gemv(const GemmArgs& args);
void gemv(const GemmArgs& args);

}  // namespace quench::cuda
