#pragma once
// Scale and soft cap of logits: y = cap * tanh(factor * x / cap) (Gemma 2, arXiv:2408.00118, section 2).

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct SoftCapArgs {
  Tensor x;  // in/out; f32/bf16, contiguous
  float factor = 1.0f;
  float cap = 1.0f;  // > 0
};

struct SoftCapBackwardArgs {
  Tensor dx;  // in: gradient of y, out: of x; f32/bf16, contiguous
  Tensor y;   // like dx
  float factor = 1.0f;
  float cap = 1.0f;
};

extern constinit KernelSlot<SoftCapArgs> soft_cap_slot;
extern constinit KernelSlot<SoftCapBackwardArgs> soft_cap_backward_slot;

// In place; f32 arithmetic, one rounding.
void soft_cap(const SoftCapArgs& args);
// dx *= factor (1 - (y / cap)^2).
void soft_cap_backward(const SoftCapBackwardArgs& args);

}  // namespace quench
