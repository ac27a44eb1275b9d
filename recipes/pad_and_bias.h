#pragma once
// Parts of a linear layer around the GEMM of quantized operands.

#include "core/tensor/tensor.h"

namespace quench::recipes {

// x [R,C] with zeros up to [rows, columns]; x itself if no padding is needed.
[[nodiscard]] Tensor zero_padded(const Tensor& x, std::int64_t rows, std::int64_t columns);

// Adds bias to the rounded GEMM result: an empty GEMM with beta 1.
void add_bias(const Tensor& y, const Tensor& bias);

}  // namespace quench::recipes
