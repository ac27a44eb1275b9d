#pragma once
// Steps of positive parameters, relative to their values: for scales, whose size differs from tensor to tensor by
// orders of magnitude.
//
// A step d multiplies a value by 1 + d where d >= 0 and by 1 / (1 - d) below: e^d to first order. No step reaches zero,
// and one forth and the same one back cancel.

#include <span>

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct MultiplicativeUpdateTensor {
  Tensor param;                     // f32 or bf16, positive
  Tensor relative;                  // d: f32, same shape
  Tensor master;                    // f32 copy of a bf16 param that is updated and then rounded into it, or undefined
  std::uint64_t random_stream = 0;  // as for sgd()
  std::int64_t element_offset = 0;
};

struct MultiplicativeUpdateArgs {
  std::span<const MultiplicativeUpdateTensor> tensors;  // all contiguous
  std::int64_t step = 1;                                // 1-based
  bool stochastic_rounding = false;                     // for bf16 params without master
  std::uint64_t seed = 0;
};

extern constinit KernelSlot<MultiplicativeUpdateArgs> multiplicative_update_slot;

// Values stay between these two, where bf16 has normal numbers; NaN stays NaN.
inline constexpr float kLeastRelativeValue = 0x1p-126f, kMostRelativeValue = 0x1p127f;

// Per element in f32. Random bits are those of adamw(): AdamWRounding::param. Throws invalid_argument naming the tensor
// that does not fit.
void multiplicative_update(const MultiplicativeUpdateArgs& args);

}  // namespace quench
