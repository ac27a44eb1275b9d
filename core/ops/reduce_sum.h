#pragma once
// Scaled sum of an f32 vector, accumulated in f64, deterministic.

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
