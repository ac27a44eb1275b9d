#pragma once
// MX emulation: quantize and dequantize in one pass.

#include "core/device/kernel_slot.h"
#include "core/number/e8m0.h"
#include "core/tensor/quant_tensor.h"

namespace quench {

// out = dequantize(quantize_mx(x, {element, mode, orientation})) (core/ops/quantize/quantize.h), natural orientation.
struct RoundMxArgs {
  Tensor x;                                     // f32 or bf16 [.., R, C], contiguous
  Tensor out;                                   // shape and dtype of x; may be x
  ElementFormat element = ElementFormat::e4m3;  // or e2m1
  MxScaleMode mode = MxScaleMode::rceil;
  Orientation orientation = Orientation::natural;  // natural: blocks of 32 along C; transposed: 32 rows
};

extern constinit KernelSlot<RoundMxArgs> round_mx_slot;

// The blocked axis must be a multiple of 32. Throws invalid_argument naming the mismatch.
void round_mx(const RoundMxArgs& args);

}  // namespace quench
