#pragma once
// GEMM cases that cuBLASLt lacks: K = 0, and a bias of another dtype than the result.

#include "core/tensor/tensor.h"

namespace quench::cuda {

// C = beta * C + bias, f32 or bf16 each; bias optional.
void gemm_empty(const Tensor& c, float beta, const Tensor& bias = {});

}  // namespace quench::cuda
