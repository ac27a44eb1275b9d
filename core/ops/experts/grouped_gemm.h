#pragma once
// Grouped GEMM: linear layers of experts (token_permutation.h).
//
// Group e has rows ends[e-1] (or 0) to ends[e], nondecreasing; never read on a GPU's host.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// Row alignment of groups for fast kernels.
[[nodiscard]] inline std::int64_t group_alignment(Device device) noexcept {
  return device.is_cpu() ? 1 : 16;
}

// C[r] = A[r] * op(B[e]) for row r of group e; 0 after the last group.
struct GroupedGemmArgs {
  Tensor a;     // [R,K], f32/bf16, contiguous
  Tensor b;     // [E,K,N], or [E,N,K] with transpose_b; dtype of a, contiguous
  Tensor ends;  // i32 [E]
  Tensor c;     // [R,N], dtype of a, contiguous
  bool transpose_b = false;
};

// C[e] = A_e^T * B_e + beta * C[e] over group e's rows, possibly none.
struct GroupedWgradArgs {
  Tensor a;  // [R,M], f32/bf16, contiguous
  Tensor b;  // [R,N], dtype of a, contiguous
  Tensor ends;
  Tensor c;  // [E,M,N], contiguous; dtype of a or f32
  float beta = 0.0f;
  // Divides every end.
  std::int64_t alignment = 1;
};

// "grouped gemm NT 4096x(8x1024)x2048 bf16"
[[nodiscard]] std::string op_label(const GroupedGemmArgs& args);
[[nodiscard]] std::string op_label(const GroupedWgradArgs& args);

extern constinit KernelSlot<GroupedGemmArgs> grouped_gemm_slot;
extern constinit KernelSlot<GroupedWgradArgs> grouped_wgrad_slot;

// f32 accumulators, one rounding.
void grouped_gemm(const GroupedGemmArgs& args);
void grouped_wgrad(const GroupedWgradArgs& args);

}  // namespace quench
