#pragma once
// Rounding of the operands of grouped products to float8 and back (core/ops/experts/grouped_gemm.h).

#include "core/device/kernel_slot.h"
#include "core/number/element_format.h"
#include "core/tensor/tensor.h"

namespace quench {

// Each column of each group of rows has a scale of its own, float8_scale of its largest magnitude
// (core/number/float8.h): out = cast(x * scale) / scale. Rows behind the last group become 0.
struct RoundGroupsArgs {
  Tensor x;                                     // [R,C], f32 or bf16, contiguous
  Tensor ends;                                  // i32 [E], as in core/ops/experts/grouped_gemm.h
  Tensor out;                                   // [R,C], dtype of x; not x itself
  ElementFormat element = ElementFormat::e4m3;  // or e5m2
  bool power_of_two = false;
};

extern constinit KernelSlot<RoundGroupsArgs> round_groups_slot;

// A NaN makes its column of the group NaN. Throws invalid_argument naming the tensor that does not fit.
void round_groups(const RoundGroupsArgs& args);

}  // namespace quench
