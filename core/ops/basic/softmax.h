#pragma once
// Softmax of rows: f32 and bf16, arithmetic in f32, one rounding, sums in a fixed order.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct SoftmaxArgs {
  Tensor x;  // [N,C], contiguous
  Tensor y;  // shape and dtype of x, contiguous; may alias x
};

struct SoftmaxBackwardArgs {
  Tensor dy;  // [N,C], contiguous
  Tensor y;   // result of softmax(), like dy
  Tensor dx;  // like dy; may alias dy or y
};

extern constinit KernelSlot<SoftmaxArgs> softmax_slot;
extern constinit KernelSlot<SoftmaxBackwardArgs> softmax_backward_slot;

// y = exp(x - max) / sum(exp(x - max)) for each row. -inf gives 0; a row of -inf alone, or with NaN or +inf, becomes
// NaN.
void softmax(const SoftmaxArgs& args);
// dx = y (dy - sum(dy y)) for each row.
void softmax_backward(const SoftmaxBackwardArgs& args);

}  // namespace quench
