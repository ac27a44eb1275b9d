#pragma once
// Matrix products over no terms, which cuBLASLt does not take.

#include "core/ops/gemm.h"

namespace quench::cuda {

// C = beta * C + bias, for K = 0.
void gemm_empty(const GemmArgs& args);

}  // namespace quench::cuda
