#pragma once
// GEMV kernels: GEMMs of few rows, bound by reading the weight (decode).

#include "core/ops/gemm.h"

namespace quench::cuda {

// Support of gemv(): at most 4 rows of a, b transposed, 16-byte aligned rows.
[[nodiscard]] bool is_gemv(const GemmArgs& args);
void gemv(const GemmArgs& args);

}  // namespace quench::cuda
