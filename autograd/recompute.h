#pragma once
// Activation checkpointing.

#include <functional>
#include <vector>

#include "autograd/tape.h"

namespace quench::autograd {

// Differentiable function of variables.
using Region = std::function<std::vector<Variable>(const std::vector<Variable>&)>;

// Values that are saved next to a region's inputs.
struct RecomputeOptions {
  // Attention's results are saved next to the inputs, and not computed again (autograd/regions/kept_values.h).
  bool keeps_attention = false;
};

// Runs `region` without recording; the backward pass reruns it on a tape of its own. `region` must be a pure function
// of inputs and parameters, with keyed random draws (core/number/random.h). Without a current tape: a plain call.
// Inputs are what is saved: in host memory where the tape's offloader wants the present layer's (autograd/offload.h).
std::vector<Variable> recompute(const Region& region, std::vector<Variable> inputs,
                                const RecomputeOptions& options = {});

}  // namespace quench::autograd
