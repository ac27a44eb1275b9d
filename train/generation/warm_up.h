#pragma once
// Generation warm-up.

#include <cstdint>

#include "nn/decoder/causal_lm.h"

namespace quench {

// Runs a prompt pass of `tokens` tokens and one decode pass, results discarded: loads libraries and kernels and creates
// plans for these shapes (tenths of a second on a GPU). Weights may be uninitialized or concurrently written.
// Synchronizes the device.
void warm_up_generation(const nn::CausalLm& model, std::int64_t tokens);

}  // namespace quench
