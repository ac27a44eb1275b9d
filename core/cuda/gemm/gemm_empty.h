#pragma once
// What a matrix product does besides the product, where cuBLASLt does not do it: products over no terms, and biases of
// another dtype than the result.

#include "core/tensor/tensor.h"

namespace quench::cuda {

// C = beta * C + bias, f32 or bf16 each. The bias may be undefined.
void gemm_empty(const Tensor& c, float beta, const Tensor& bias = {});

}  // namespace quench::cuda
