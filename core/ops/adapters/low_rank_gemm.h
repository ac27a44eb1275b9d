#pragma once
// A matrix product and another of few inner columns added to it, a linear layer with a low-rank update of its weight:
// C = A op(B) + U V, where each block of C's columns may have its own columns of U and its own V.

#include <vector>

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct LowRankBlock {
  Tensor v;                     // [rank,n], or [n,rank] with transpose_b; the dtype of a; rows may be strided
  std::int64_t column = 0;      // the first of n columns of C
  std::int64_t rank_begin = 0;  // the first of `rank` columns of U
};

struct LowRankGemmArgs {
  Tensor a;                          // [M,K], f32 or bf16; rows may be strided, columns contiguous
  Tensor b;                          // [K,N], or [N,K] with transpose_b. Dtype of a, likewise
  Tensor u;                          // [M,R], likewise
  Tensor c;                          // out, [M,N], dtype of a or f32, likewise; undefined with dgate_up
  std::vector<LowRankBlock> blocks;  // in the order of their columns, apart from each other
  bool transpose_b = false;
  Tensor gated{};  // out, [M,N/2] in the dtype of c, contiguous: SwiGLU of c (core/ops/swiglu.h); undefined: not wanted
  // C is the gradient of what SwiGLU made of gate_up [M,2N]; in its place dgate_up (out, [M,2N], may alias gate_up) is
  // written. Dtype of a, contiguous.
  Tensor gate_up{}, dgate_up{};
};

// "low-rank gemm NT 16384x3072x2048+48 bf16": transposes, M x N x K + R, dtype of the result; "+ swiglu" or "+ swiglu
// backward" where that is wanted.
[[nodiscard]] std::string op_label(const LowRankGemmArgs& args);

extern constinit KernelSlot<LowRankGemmArgs> low_rank_gemm_slot;

// Accumulates in f32, one rounding to c's dtype, where a device has a kernel for the operands; elsewhere as
// low_rank_gemm_in_products(). Throws invalid_argument naming the shapes when they do not fit.
void low_rank_gemm(const LowRankGemmArgs& args);

// The same by gemm(), with its roundings: the update first where its blocks have all columns, and the product onto it;
// else the product first. With dgate_up C is made apart, by low_rank_gemm(). For checked operands.
void low_rank_gemm_in_products(const LowRankGemmArgs& args);

}  // namespace quench
