#pragma once
// What a matrix product does besides the product, where cuBLASLt does not do it: products over no terms, and biases of
// another dtype than the result.

#include "core/ops/gemm.h"

namespace quench::cuda {

// C = beta * C + bias, whatever a and b are.
void gemm_empty(const GemmArgs& args);

}  // namespace quench::cuda
