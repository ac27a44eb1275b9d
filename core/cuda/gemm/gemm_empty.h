#pragma once
// Cases that cuBLASLt lacks: K = 0, bias of another dtype than the result.

#include "core/tensor/tensor.h"

namespace quench::cuda {

// C = beta * C + bias, f32/bf16 each.
void gemm_empty(const Tensor& c, float beta, const Tensor& bias = {});

}  // namespace quench::cuda
