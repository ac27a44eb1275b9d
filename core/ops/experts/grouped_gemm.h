#pragma once
// Matrix products whose rows belong to groups: the linear layers of the experts of a mixture
// (core/ops/experts/token_permutation.h).
//
// Group e of `ends` i32 [E] has the rows from ends[e-1] (0 for the first) to ends[e]; a group may be empty. `ends` does
// not decrease, and only the device knows it: nothing here reads it on the host of a GPU.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// What the rows of a group are to be multiples of, so that a device's fast kernels apply.
[[nodiscard]] inline std::int64_t group_alignment(Device device) noexcept {
  return device.is_cpu() ? 1 : 16;
}

// C[r] = A[r] * op(B[e]) for every row r of group e; rows behind the last group become 0.
struct GroupedGemmArgs {
  Tensor a;     // [R,K], f32 or bf16, contiguous
  Tensor b;     // [E,K,N], or [E,N,K] with transpose_b; dtype of a, contiguous
  Tensor ends;  // i32 [E]
  Tensor c;     // [R,N], dtype of a, contiguous
  bool transpose_b = false;
};

// C[e] = A_e^T * B_e + beta * C[e] over the rows of group e: the gradient of the experts' weights. An empty group's is
// beta * C[e].
struct GroupedWgradArgs {
  Tensor a;     // [R,M], f32 or bf16, contiguous
  Tensor b;     // [R,N], dtype of a, contiguous
  Tensor ends;  // i32 [E]
  Tensor c;     // [E,M,N], contiguous; dtype of a, or f32
  float beta = 0.0f;
  // What every number in `ends` is a multiple of.
  std::int64_t alignment = 1;
};

// "grouped gemm NT 4096x(8x1024)x2048 bf16"
[[nodiscard]] std::string op_label(const GroupedGemmArgs& args);
[[nodiscard]] std::string op_label(const GroupedWgradArgs& args);

extern constinit KernelSlot<GroupedGemmArgs> grouped_gemm_slot;
extern constinit KernelSlot<GroupedWgradArgs> grouped_wgrad_slot;

// Accumulate in f32, one rounding to c's dtype. Throw invalid_argument naming the shapes when they do not fit.
void grouped_gemm(const GroupedGemmArgs& args);
void grouped_wgrad(const GroupedWgradArgs& args);

}  // namespace quench
