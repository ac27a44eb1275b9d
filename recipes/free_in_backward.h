#pragma once
// Whether a layer's input costs memory when it is saved.

#include "autograd/tape.h"

namespace quench::recipes {

// True if x will be there in the backward pass, or be made again on its way, without being kept for the layer.
[[nodiscard]] inline bool is_free_in_backward(const autograd::Variable& x) {
  const autograd::Tape* tape = autograd::Tape::current();
  return x.saved_by_producer() ||
         (x.recompute() != nullptr && tape != nullptr && tape->recompute() == autograd::Recompute::selective);
}

}  // namespace quench::recipes
