#pragma once
// Dropout (Srivastava et al., 2014), inverted: what stays is scaled up.

#include "core/device/kernel_slot.h"
#include "core/number/random.h"
#include "core/tensor/tensor.h"

namespace quench {

// out = x / (1 - probability) where the draw of the element, to_uniform(random_word(key, number of the element)), is
// at least `probability`, else 0. f32 or bf16 of any shape, contiguous; out may be x; probability in [0, 1). Throws
// invalid_argument naming the tensor that does not fit.
struct DropoutArgs {
  Tensor x, out;
  float probability = 0;
  RandomKey key;
};
extern constinit KernelSlot<DropoutArgs> dropout_slot;
void dropout(const DropoutArgs& args);

}  // namespace quench
