#pragma once
// C = alpha * A B^T + beta * C (+ bias) with at most kGemvRows rows in A: one token at a time, as when text is
// generated. Bound by reading B once.

#include "core/ops/gemm.h"

namespace quench::cpu {

inline constexpr std::int64_t kGemvRows = 4;

// Arguments as checked by gemm(), with transpose_b and not transpose_a, 1 <= M <= kGemvRows, N > 0 and K > 0.
extern constinit KernelSlot<GemmArgs> gemv_slot;

}  // namespace quench::cpu
