#pragma once
// Delayed scaling: encode scales of a step from the amax of earlier steps (Micikevicius et al., 2022, arXiv:2209.05433;
// TransformerEngine's recipe.DelayedScaling with amax_compute_algo "max").

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// End of a step, for each operand i:
//   if 0 < recorded[i] < infinity: history[i] moves by one column and begins with recorded[i]
//   recorded[i] = 0
//   scale[i] = largest[i] / max(max(history[i]), 1e-12) / 2^margin, in f32; 1 without history
// A zero or non-finite amax leaves the history as it is.
struct DelayedScalingArgs {
  Tensor recorded;  // in/out, f32 [N]: amax of the step; not negative
  Tensor history;   // in/out, f32 [N,H], H >= 1: newest first, zeros after the last one
  Tensor largest;   // f32 [N]: largest finite value of each operand's format
  Tensor scale;     // out, f32 [N]
  int margin = 0;
};

extern constinit KernelSlot<DelayedScalingArgs> delayed_scaling_slot;

// One kernel for all operands.
void update_delayed_scales(const DelayedScalingArgs& args);

}  // namespace quench
