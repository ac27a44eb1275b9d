#pragma once
// Biases of experts' projections, over rows sorted by expert (core/ops/experts/token_permutation.h).

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// y[r] += weights[pairs[r]] * bias[e] for row r of expert e; padding rows are not written.
struct GroupBiasArgs {
  Tensor y;          // in/out, [R,M]; f32/bf16, contiguous
  Tensor bias;       // [E,M], dtype of y
  Tensor ends;       // i32 [E]
  Tensor pairs;      // i32 [R]
  Tensor weights{};  // f32 [N,k], optional: 1
};

struct GroupBiasBackwardArgs {
  Tensor dy;    // [R,M]
  Tensor bias;  // [E,M]; read for dweights
  Tensor ends;
  Tensor pairs;
  Tensor weights{};         // as in the forward pass
  Tensor dbias{};           // out, optional, [E,M], f32 or dtype of dy
  bool accumulate = false;  // into dbias
  Tensor dweights{};        // out, optional, f32 [N,k], all written: dy[r] . bias[e]; needs `weights`
};

extern constinit KernelSlot<GroupBiasArgs> group_bias_slot;
extern constinit KernelSlot<GroupBiasBackwardArgs> group_bias_backward_slot;

// f32 arithmetic, one rounding.
void add_group_bias(const GroupBiasArgs& args);
// Sums in f32, deterministic.
void group_bias_backward(const GroupBiasBackwardArgs& args);

}  // namespace quench
