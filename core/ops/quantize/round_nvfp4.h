#pragma once
// Fused NVFP4 fake quantization, for QAT.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// out = dequantize(quantize_nvfp4(x, global_scale)).
struct RoundNvfp4Args {
  Tensor x;               // f32/bf16 [.., C], contiguous
  Tensor global_scale{};  // f32 [1]; undefined: one level
  Tensor out;             // like x; may be x
};

extern constinit KernelSlot<RoundNvfp4Args> round_nvfp4_slot;

// The last axis is a multiple of 16.
void round_nvfp4(const RoundNvfp4Args& args);

}  // namespace quench
