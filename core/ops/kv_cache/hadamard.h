#pragma once
// Hadamard transform of heads (core/number/hadamard.h), in place. Of queries and keys alike it keeps every score, and
// spreads the few large elements of keys over all: a code by the largest element has less error (QuaRot, Ashkboos et
// al., 2024, arXiv:2404.00456).

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct HadamardArgs {
  Tensor x;  // in/out, [N, heads, D], f32/bf16, contiguous last axis; in f32, one rounding
};

extern constinit KernelSlot<HadamardArgs> hadamard_slot;

void hadamard(const HadamardArgs& args);

}  // namespace quench
