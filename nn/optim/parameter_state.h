#pragma once
// An optimizer's parameters and what it keeps for them, for code that offloads the state.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tensor/tensor.h"

namespace quench::nn {

// Places in an optimizer's list of parameters: from `begin` to before `end`.
struct ParameterRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  friend bool operator==(const ParameterRange&, const ParameterRange&) = default;
};

struct ParameterState {
  std::vector<Tensor*> tensors;  // where the state of the parameter is kept
};

}  // namespace quench::nn
