#pragma once
// Rows of a matrix times one factor each, in place.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct ScaleRowsArgs {
  Tensor x;        // [N,W], contiguous; f32/bf16
  Tensor factors;  // f32 [N]
};

extern constinit KernelSlot<ScaleRowsArgs> scale_rows_slot;

// x[i] *= factors[i]: product in f32, one rounding. A row with factor 0 becomes 0, also where it is not finite.
void scale_rows(const ScaleRowsArgs& args);

}  // namespace quench
