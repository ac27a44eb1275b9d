#pragma once
// MX emulation: fused quantize and dequantize.

#include "core/device/kernel_slot.h"
#include "core/number/e8m0.h"
#include "core/tensor/quant_tensor.h"

namespace quench {

// out = dequantize(quantize_mx(x, {element, mode, orientation})).
struct RoundMxArgs {
  Tensor x;                                     // f32/bf16 [.., R, C], contiguous
  Tensor out;                                   // like x; may be x
  ElementFormat element = ElementFormat::e4m3;  // or e2m1
  MxScaleMode mode = MxScaleMode::rceil;
  Orientation orientation = Orientation::natural;  // transposed: 32 rows
};

extern constinit KernelSlot<RoundMxArgs> round_mx_slot;

// The blocked axis is a multiple of 32.
void round_mx(const RoundMxArgs& args);

}  // namespace quench
