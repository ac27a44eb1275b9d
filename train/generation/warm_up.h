#pragma once
// What a model's first passes pay once, paid ahead of them.

#include <cstdint>

#include "nn/causal_lm.h"

namespace quench {

// Runs the pass of a prompt of `tokens` tokens and of one token behind it, and drops the results: libraries are opened,
// their plans for these shapes made and kernels loaded (on a GPU some tenths of a second). The weights may hold
// anything and may be written meanwhile by another thread. Returns when the device is done.
void warm_up_generation(const nn::CausalLm& model, std::int64_t tokens);

}  // namespace quench
