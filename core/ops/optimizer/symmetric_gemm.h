#pragma once
// Products that are symmetric: Gram matrices, and products of symmetric matrices that commute. A bit more than half of
// the work of a product: what lies above the diagonal is taken from below it.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// C[i] = factor (alpha A[i] B[i]^T + beta addend[i] + diagonal I) for each matrix i of a batch; with `transpose` A[i]^T
// B[i].
// The caller knows that the products are symmetric (up to rounding), and so is the addend.
struct SymmetricGemmArgs {
  Tensor a;  // [batch,N,K], or [batch,K,N] with transpose. f32 or bf16, contiguous
  Tensor b;  // like a
  Tensor c;  // [batch,N,N], dtype of a, contiguous; overlaps neither a nor b
  bool transpose = false;
  float alpha = 1.0f;
  float beta = 0.0f;  // 0: the addend is not read
  Tensor addend{};    // like c, or undefined where beta is 0; may be a or b
  float diagonal = 0.0f;
  Tensor factors{};  // f32 [batch], a factor for each matrix; undefined: 1
};

// "symmetric gemm T 8x2048x2048x8192 bf16": batch x N x N x K; T with transpose, "+" where beta is not 0.
[[nodiscard]] std::string op_label(const SymmetricGemmArgs& args);

extern constinit KernelSlot<SymmetricGemmArgs> symmetric_gemm_slot;

// Accumulates in f32, one rounding to c's dtype. (A GPU without a kernel for the sizes multiplies as gemm() does and
// rounds once more with diagonal and factor.) The bits of a matrix do not depend on the others of the batch. Throws
// invalid_argument naming the shapes when they do not fit.
void symmetric_gemm(const SymmetricGemmArgs& args);

}  // namespace quench
