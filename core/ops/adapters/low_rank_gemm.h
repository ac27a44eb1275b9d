#pragma once
// GEMM with a fused LoRA update: C = A op(B) + U V, U and V per column block of C.

#include <vector>

#include "core/device/kernel_slot.h"
#include "core/ops/gated_activation.h"
#include "core/tensor/tensor.h"

namespace quench {

struct LowRankBlock {
  Tensor v;                     // [rank,n], or [n,rank] with transpose_b; dtype of a
  std::int64_t column = 0;      // first of n in C
  std::int64_t rank_begin = 0;  // first of rank in U
};

struct LowRankGemmArgs {
  Tensor a;                          // [M,K], f32/bf16; contiguous columns, as all operands
  Tensor b;                          // [K,N], or [N,K] with transpose_b; dtype of a
  Tensor u;                          // [M,R], dtype of a
  Tensor c{};                        // out, [M,N], dtype of a or f32; undefined with dgate_up
  std::vector<LowRankBlock> blocks;  // columns ascending, disjoint
  bool transpose_b = false;
  Tensor gated{};  // out, optional, [M,N/2], dtype of c, contiguous: gated unit of c (core/ops/swiglu.h)
  // dgrad with a fused backward of the gated unit: stores dgate_up (out, [M,2N], may alias gate_up [M,2N]; dtype of a,
  // contiguous) instead of C, the gradient of swiglu(gate_up).
  Tensor gate_up{}, dgate_up{};
  GatedActivation activation = GatedActivation::silu;  // unit of `gated` and dgate_up
};

// "low-rank gemm NT 16384x3072x2048+48 bf16 + swiglu": MxNxK+R; also "+ swiglu backward", "+ geglu".
[[nodiscard]] std::string op_label(const LowRankGemmArgs& args);

extern constinit KernelSlot<LowRankGemmArgs> low_rank_gemm_slot;

// f32 accumulators, one rounding, with a device kernel; else low_rank_gemm_in_products().
void low_rank_gemm(const LowRankGemmArgs& args);

// Separate GEMMs, each rounded: the update first if its blocks cover all columns, else last. dgate_up: C from
// low_rank_gemm(). Unchecked operands.
void low_rank_gemm_in_products(const LowRankGemmArgs& args);

}  // namespace quench
