#pragma once
// Multi-tensor exponential moving average of weights.

#include <span>

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct AveragedTensor {
  Tensor param;    // f32 or bf16
  Tensor average;  // f32 or bf16, in place
  std::uint64_t random_stream = 0;
  std::int64_t element_offset = 0;  // global index of the shard's start
};

struct WeightAverageArgs {
  std::span<const AveragedTensor> tensors;  // all contiguous
  double decay = 0.999;                     // in (0, 1)
  std::int64_t step = 1;                    // 1-based
  std::uint64_t seed = 0;
};

extern constinit KernelSlot<WeightAverageArgs> weight_average_slot;

// In f32: a = a + (1 - decay) (p - a), with one fused multiply-add; 1 - decay in f64, rounded once. An average in bf16
// is rounded stochastically, so that its mean follows the average in f32 for any decay: random bits as adamw() with
// AdamWRounding::param.
void average_weights(const WeightAverageArgs& args);

}  // namespace quench
