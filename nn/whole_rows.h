#pragma once
// Parameters outside of passes: merging and exporting read them whole, whatever part of them this process holds.

#include <functional>

#include "nn/parameter.h"

namespace quench::nn {

// Brings the values of all rows of a parameter. Empty: this process holds all rows of all.
using WholeRows = std::function<Tensor(const Parameter&)>;

[[nodiscard]] inline Weight whole_weight(const Parameter& parameter, const WholeRows& whole) {
  return whole ? Weight(Variable(whole(parameter))) : parameter.weight();
}

}  // namespace quench::nn
