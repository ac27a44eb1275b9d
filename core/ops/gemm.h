#pragma once
// Matrix product: C[M,N] = alpha * op(A) * op(B) + beta * addend (+ bias[N] on every row), where the addend is C unless
// another one is given.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct GemmArgs {
  Tensor a;  // [M,K], or [K,M] with transpose_a. f32 or bf16; rows may be strided, columns contiguous
  Tensor b;  // [K,N], or [N,K] with transpose_b. Same dtype as a
  Tensor c;  // [M,N], contiguous columns. dtype of a, or f32
  bool transpose_a = false;
  bool transpose_b = false;
  float alpha = 1.0f;
  float beta = 0.0f;  // 0: c is write-only, its old contents (NaN included) do not matter
  Tensor bias;        // [N] in the dtype of a, or undefined
  // [M,N] in the dtype of c, contiguous columns: what beta multiplies in place of c's old contents. Does not overlap c.
  // Undefined: c.
  Tensor addend{};
};

// "gemm NT 16384x4096x14336 bf16": transposes, M x N x K, dtype of c; "+=" where beta is not 0, "+" where it multiplies
// an addend.
[[nodiscard]] std::string op_label(const GemmArgs& args);

extern constinit KernelSlot<GemmArgs> gemm_slot;

// Accumulates in f32 whatever the operands' dtype; one rounding to c's dtype. (A GPU with bf16 c and beta rounds the
// product to bf16 and the sum once more: cuBLASLt's way. With a bias beside an addend, or beside rows that are not
// aligned, its errors are larger, as if what stands before the bias were rounded too.)
// M, N or K of 0 are allowed (K = 0 gives beta * addend + bias). Throws invalid_argument naming the shapes when they do
// not fit.
void gemm(const GemmArgs& args);

// While it is alive, the shapes of this thread's products repeat step after step, so a back end may time algorithms and
// choose the fastest for each shape. Without it (prompts and documents make new shapes all the time) the choice does
// not depend on timing.
class GemmTuning {
 public:
  GemmTuning() noexcept;
  ~GemmTuning();
  GemmTuning(const GemmTuning&) = delete;
  GemmTuning& operator=(const GemmTuning&) = delete;
  [[nodiscard]] static bool wanted() noexcept;

 private:
  bool previous_;
};

}  // namespace quench
