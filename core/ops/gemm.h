#pragma once
// GEMM: C[M,N] = alpha * op(A) * op(B) + beta * addend (+ bias[N]); addend defaults to C.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct GemmArgs {
  Tensor a;  // [M,K], or [K,M] with transpose_a; f32/bf16; contiguous columns, as b, c, addend
  Tensor b;  // [K,N], or [N,K] with transpose_b; dtype of a
  Tensor c;  // [M,N], dtype of a or f32
  bool transpose_a = false;
  bool transpose_b = false;
  float alpha = 1.0f;
  float beta = 0.0f;  // 0: c is write-only, NaN included
  Tensor bias{};      // [N], dtype of a, optional
  // [M,N], dtype of c, not overlapping c; undefined: c.
  Tensor addend{};
};

// "gemm NT 16384x4096x14336 bf16": transposes, MxNxK, dtype of c; "+=" with beta, "+" with addend.
[[nodiscard]] std::string op_label(const GemmArgs& args);

extern constinit KernelSlot<GemmArgs> gemm_slot;

// f32 accumulators, one rounding. Exception: cuBLASLt with bf16 c and beta rounds the GEMM, then the sum; a bias with
// an addend or unaligned rows rounds the value before the bias too. M, N or K may be 0.
void gemm(const GemmArgs& args);

// Scope in which this thread's GEMM shapes repeat, enabling autotuning; elsewhere algorithms are independent of timing.
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
