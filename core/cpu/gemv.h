#pragma once
// GEMV for decode: C = alpha * A B^T + beta * C (+ bias), at most kGemvRows rows in A. Memory bound.

#include "core/ops/gemm.h"

namespace quench::cpu {

inline constexpr std::int64_t kGemvRows = 4;

// Validated by gemm(): transpose_b, not transpose_a, 1 <= M <= kGemvRows, N > 0, K > 0.
extern constinit KernelSlot<GemmArgs> gemv_slot;

}  // namespace quench::cpu
