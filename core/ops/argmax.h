#pragma once
// Index of the largest element of each row: greedy decode on the device.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct ArgmaxArgs {
  Tensor x;                // [N,C] f32 or bf16, contiguous, C >= 1
  Tensor index;            // i32 [N]: first maximum, NaN skipped; 0 if all are NaN
  Tensor first_nonfinite;  // i32 [N]: first NaN or infinity, else -1; may be undefined
};

extern constinit KernelSlot<ArgmaxArgs> argmax_slot;

// Throws invalid_argument naming the mismatched tensor.
void argmax(const ArgmaxArgs& args);

}  // namespace quench
