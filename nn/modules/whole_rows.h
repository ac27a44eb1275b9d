#pragma once
// Whole values of parameters that may be sharded.

#include <functional>

#include "nn/modules/parameter.h"

namespace quench::nn {

// All-gathers a parameter, for merging and export. Empty: not sharded.
using WholeRows = std::function<Tensor(const Parameter&)>;

[[nodiscard]] inline Weight whole_weight(const Parameter& parameter, const WholeRows& whole) {
  return whole ? Weight(Variable(whole(parameter))) : parameter.weight();
}

}  // namespace quench::nn
