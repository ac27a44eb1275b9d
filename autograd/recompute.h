#pragma once
// Recompute regions (activation checkpointing): keep a region's inputs, run it again when the backward pass arrives.

#include <functional>
#include <vector>

#include "autograd/tape.h"

namespace quench::autograd {

using Region = std::function<std::vector<Variable>(const std::vector<Variable>&)>;

// Runs `region` without recording and returns its outputs; the backward pass runs it again on a tape of its own.
// `region` must be a pure function of the inputs and of leaves (parameters): random draws inside must be keyed, as
// core/number/random.h draws are, so that both runs see the same values. Without a current tape it is a plain call.
std::vector<Variable> recompute(const Region& region, std::vector<Variable> inputs);

}  // namespace quench::autograd
