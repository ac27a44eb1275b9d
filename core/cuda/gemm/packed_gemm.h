#pragma once
// Dequantizing GEMM on tensor cores of up to kPackedGemmRows rows of x, for decoding of many sequences: the weight is
// read once.

#include "core/ops/packed_linear.h"

namespace quench::cuda {

// bf16 x of at most kPackedGemmRows rows; K and group sizes are multiples of 32, those of i8 codes without offsets of
// 16.
[[nodiscard]] bool packed_gemm_supports(const Tensor& x, const PackedMatrix& weight);
// Sums of an element of y are of one order for all numbers of rows.
void packed_gemm(const PackedLinearArgs& args);

}  // namespace quench::cuda
