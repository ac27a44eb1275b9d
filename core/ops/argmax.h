#pragma once
// Index of the largest element of each row: greedy decoding without a trip of the logits to the host.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct ArgmaxArgs {
  Tensor x;                // [N,C] f32 or bf16, contiguous, C at least 1
  Tensor index;            // i32 [N]: the first of the largest, NaN left out; 0 where there is nothing else
  Tensor first_nonfinite;  // i32 [N]: the first NaN or infinity, -1 without one; or undefined
};

extern constinit KernelSlot<ArgmaxArgs> argmax_slot;

// Throws invalid_argument naming the tensor that does not fit.
void argmax(const ArgmaxArgs& args);

}  // namespace quench
