#pragma once
// Float8 and int8 GEMM: C[M,N] = A * B^T + beta * C.
//
// Payloads are K-major: columnwise operands are passed as transposed_view().

#include "core/device/kernel_slot.h"
#include "core/tensor/quant_tensor.h"

namespace quench {

struct ScaledGemmArgs {
  QuantTensor a;  // [M,K] natural orientation: e4m3/e5m2, f32 encode scales, tensorwise or rowwise; or int8, rowwise
  QuantTensor b;  // [N,K], as a; not both e5m2; int8 with int8
  Tensor c;       // [M,N] bf16 or f32, contiguous columns
  float beta = 0.0f;  // 0: c is write-only
  // No promoted accumulation: faster, fewer accumulator bits. CPUs ignore it.
  bool fast_accumulation = false;
};

// "float8 gemm 16384x4096x14336 e4m3 row x e4m3 row -> bf16"
[[nodiscard]] std::string op_label(const ScaledGemmArgs& args);

extern constinit KernelSlot<ScaledGemmArgs> scaled_gemm_slot;

// Accumulators times reciprocals of both scales in f32, one rounding (GPUs with beta and bf16 c also round before the
// addition). GPUs: K and N % 16 == 0; those without float8 tensor cores multiply the
// codes in bf16. M, N or K may be 0.
// int8: exact int32 sums (CPU: f32 sums, exact below 2^24), then f32(sum) * row scale * column scale, as TorchAO.
void gemm(const ScaledGemmArgs& args);

// Emulation on any device (TorchAO's `emulate`): f32 GEMM of dequantized operands, one rounding after beta * C.
void gemm_emulated(const ScaledGemmArgs& args);

// c = a * b^T + beta * c of f32 operands [M,K], [N,K]: one rounding to the dtype of c.
void gemm_in_f32(const Tensor& a, const Tensor& b, const Tensor& c, float beta);

}  // namespace quench
