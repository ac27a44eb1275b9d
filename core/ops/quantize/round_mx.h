#pragma once
// Rounding to MX and back in one pass: the values that products of MX operands multiply, where they run on operands of
// the tensor's own dtype.

#include "core/device/kernel_slot.h"
#include "core/number/e8m0.h"
#include "core/tensor/quant_tensor.h"

namespace quench {

// out = dequantize(quantize_mx(x, {element, mode, orientation})) (core/ops/quantize/quantize.h), in natural
// orientation.
struct RoundMxArgs {
  Tensor x;                                     // f32 or bf16 [.., R, C], contiguous
  Tensor out;                                   // shape and dtype of x; may be x
  ElementFormat element = ElementFormat::e4m3;  // or e2m1
  MxScaleMode mode = MxScaleMode::rceil;
  Orientation orientation = Orientation::natural;  // natural: blocks of 32 along C; transposed: of 32 rows
};

extern constinit KernelSlot<RoundMxArgs> round_mx_slot;

// The axis that blocks run along must be a multiple of 32. Throws invalid_argument naming what does not fit.
void round_mx(const RoundMxArgs& args);

}  // namespace quench
