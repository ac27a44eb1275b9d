#pragma once
// Rowwise argmax, for greedy decode.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct ArgmaxArgs {
  Tensor x;                  // [N,C] f32/bf16, contiguous, C >= 1
  Tensor index;              // i32 [N]: first maximum, NaN skipped; 0 if all NaN
  Tensor first_nonfinite{};  // i32 [N]: first NaN/Inf, else -1; optional
};

extern constinit KernelSlot<ArgmaxArgs> argmax_slot;

void argmax(const ArgmaxArgs& args);

}  // namespace quench
