#pragma once
// Inverted dropout (Srivastava et al., 2014).

#include "core/device/kernel_slot.h"
#include "core/number/random.h"
#include "core/tensor/tensor.h"

namespace quench {

// out = x / (1 - probability) if to_uniform(random_word(key, element index)) >= probability, else 0. f32/bf16,
// contiguous; out may alias x; probability in [0, 1).
struct DropoutArgs {
  Tensor x, out;
  float probability = 0;
  RandomKey key;
};
extern constinit KernelSlot<DropoutArgs> dropout_slot;
void dropout(const DropoutArgs& args);

}  // namespace quench
