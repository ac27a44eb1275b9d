#pragma once
// Symmetric GEMMs (Gram matrices): the lower triangle is computed and mirrored, about half the FLOPs.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// C[i] = factor (alpha A[i] B[i]^T + beta addend[i] + diagonal I), A[i]^T B[i] with transpose. Precondition: A B^T and
// addend are symmetric.
struct SymmetricGemmArgs {
  Tensor a;  // [batch,N,K], or [batch,K,N] with transpose. f32/bf16, contiguous
  Tensor b;  // like a
  Tensor c;  // [batch,N,N], dtype of a, contiguous; overlaps neither a nor b
  bool transpose = false;
  float alpha = 1.0f;
  float beta = 0.0f;
  Tensor addend{};  // like c; may be a or b; unused if beta is 0
  float diagonal = 0.0f;
  Tensor factors{};  // f32 [batch]; undefined: 1
};

// "symmetric gemm T 8x2048x2048x8192 bf16": T with transpose, batch x N x N x K, "+" with beta.
[[nodiscard]] std::string op_label(const SymmetricGemmArgs& args);

extern constinit KernelSlot<SymmetricGemmArgs> symmetric_gemm_slot;

// f32 accumulators, one rounding (GPUs without a kernel for the sizes round again after diagonal and factor). Bits of a
// matrix are independent of its batch.
void symmetric_gemm(const SymmetricGemmArgs& args);

}  // namespace quench
