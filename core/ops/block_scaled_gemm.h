#pragma once
// Block-scaled GEMM: C[M,N] = A * B^T + beta * C, both operands in MXFP8 or both in NVFP4.

#include "core/device/kernel_slot.h"
#include "core/tensor/quant_tensor.h"

namespace quench {

struct BlockScaledGemmArgs {
  // [M,K] and [N,K], natural orientation, scales along K. MXFP8: e4m3 in blocks of 32 with E8M0 scales. NVFP4: e2m1 in
  // blocks of 16 with e4m3 scales; a global scale for both or for neither.
  QuantTensor a, b;
  Tensor c;           // [M,N] bf16 or f32, contiguous columns
  float beta = 0.0f;  // 0: c is write-only
};

// "mxfp8 gemm 16384x4096x14336 -> bf16"
[[nodiscard]] std::string op_label(const BlockScaledGemmArgs& args);

extern constinit KernelSlot<BlockScaledGemmArgs> block_scaled_gemm_slot;

// CPU: f32 GEMM of dequantized operands, one rounding after beta * C. GPUs: tensor cores of the format where
// has_block_scaled_gemms() and the library takes the sizes; else operands are dequantized to bf16 (exact for MXFP8 of
// scales in the range of bf16, rounded for NVFP4) for a bf16 GEMM. M, N or K may be 0.
void block_scaled_gemm(const BlockScaledGemmArgs& args);

// Whether the device's tensor cores multiply the format: compute capability 10.0 and later with cuBLASLt 12.8 and
// later. False for devices other than GPUs.
struct BlockScaledSupportArgs {
  Device device;
  ElementFormat element;
  bool* supported;
};
extern constinit KernelSlot<BlockScaledSupportArgs> block_scaled_support_slot;
[[nodiscard]] bool has_block_scaled_gemms(Device device, ElementFormat element);

}  // namespace quench
