#pragma once
// Sum of an f32 vector, in f64 and in a fixed order, times a factor.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct ReduceSumArgs {
  Tensor x;    // f32 [N], contiguous
  Tensor out;  // f32 [1]
  float scale = 1.0f;
};

extern constinit KernelSlot<ReduceSumArgs> reduce_sum_slot;

void reduce_sum(const ReduceSumArgs& args);

}  // namespace quench
