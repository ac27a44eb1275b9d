#pragma once
// Multiplicative updates of positive parameters (scales). Other fields: AdamWTensor.
//
// Step d multiplies by 1 + d (d >= 0) or 1 / (1 - d) (d < 0): e^d to first order, never zero; d then -d cancel.

#include <span>

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct MultiplicativeUpdateTensor {
  Tensor param;     // positive
  Tensor relative;  // d, f32
  Tensor master;
  std::uint64_t random_stream = 0;
  std::int64_t element_offset = 0;
};

struct MultiplicativeUpdateArgs {
  std::span<const MultiplicativeUpdateTensor> tensors;  // all contiguous
  std::int64_t step = 1;                                // 1-based
  bool stochastic_rounding = false;                     // bf16 params without master
  std::uint64_t seed = 0;
};

extern constinit KernelSlot<MultiplicativeUpdateArgs> multiplicative_update_slot;

// Normal bf16 range. NaN stays NaN.
inline constexpr float kLeastRelativeValue = 0x1p-126f, kMostRelativeValue = 0x1p127f;

// f32 arithmetic. Random bits as adamw() with AdamWRounding::param.
void multiplicative_update(const MultiplicativeUpdateArgs& args);

}  // namespace quench
