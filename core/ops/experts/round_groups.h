#pragma once
// Emulation of float8 operands of grouped GEMMs.

#include "core/device/kernel_slot.h"
#include "core/number/element_format.h"
#include "core/tensor/tensor.h"

namespace quench {

// Columnwise per group: out = cast(x * scale) / scale, float8_scale of the amax; 0 after the last group.
struct RoundGroupsArgs {
  Tensor x;                                     // [R,C], f32/bf16, contiguous
  Tensor ends;                                  // i32 [E]
  Tensor out;                                   // [R,C], dtype of x; must not alias x
  ElementFormat element = ElementFormat::e4m3;  // or e5m2
  bool power_of_two = false;
};

extern constinit KernelSlot<RoundGroupsArgs> round_groups_slot;

// A NaN makes its column of the group NaN.
void round_groups(const RoundGroupsArgs& args);

}  // namespace quench
