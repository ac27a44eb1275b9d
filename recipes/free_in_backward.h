#pragma once
// Test whether the backward pass has a value without cost.

#include "autograd/tape.h"

namespace quench::recipes {

// True if x is free in the backward pass: its producer saves it, or recomputes it anyway.
[[nodiscard]] inline bool is_free_in_backward(const autograd::Variable& x) {
  const autograd::Tape* tape = autograd::Tape::current();
  return x.fused().saved_by_producer() ||
         (x.fused().recompute() != nullptr && tape != nullptr && tape->recompute() == autograd::Recompute::selective);
}

}  // namespace quench::recipes
