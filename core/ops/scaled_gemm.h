#pragma once
// Matrix product of quantized operands: C[M,N] = A * B^T + beta * C.
//
// Both payloads have the contraction axis last, which is what the tensor cores read: an operand quantized along its
// other axis is stored transposed and passed as its transposed_view().

#include "core/device/kernel_slot.h"
#include "core/tensor/quant_tensor.h"

namespace quench {

struct ScaledGemmArgs {
  QuantTensor a;      // [M,K] e4m3 or e5m2, natural orientation, f32 encode scales by tensor or row
  QuantTensor b;      // [N,K] likewise; granularity and element format may differ from a's, not both e5m2
  Tensor c;           // [M,N] bf16 or f32, contiguous columns
  float beta = 0.0f;  // 0: c is write-only
  // Keep partial sums in the tensor core's own accumulator, which holds fewer bits than f32: faster. Otherwise they are
  // promoted to f32 at fixed steps along K. CPUs accumulate in f32 either way.
  bool fast_accumulation = false;
};

// "float8 gemm 16384x4096x14336 e4m3 row x e4m3 row -> bf16"
[[nodiscard]] std::string op_label(const ScaledGemmArgs& args);

extern constinit KernelSlot<ScaledGemmArgs> scaled_gemm_slot;

// Sum of code products, times the reciprocals of both scales in f32, one rounding to c's dtype (a GPU with beta and
// bf16 c rounds the product before it adds). GPUs want K and N to be multiples of 16; M, N or K of 0 are allowed.
// Throws invalid_argument naming the operand that does not fit, unsupported for a GPU without float8 tensor cores.
void gemm(const ScaledGemmArgs& args);

// The same on any device: both operands dequantized to f32 (code / scale), an f32 product, one rounding to c's dtype
// after beta * C has been added. What the CPU runs, and the oracle of the GPU's kernel (TorchAO's `emulate`).
void gemm_emulated(const ScaledGemmArgs& args);

}  // namespace quench
