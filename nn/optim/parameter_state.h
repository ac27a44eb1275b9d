#pragma once
// State tensors of a parameter in an optimizer, and ranges of parameters.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tensor/tensor.h"

namespace quench::nn {

// [begin, end) of an optimizer's parameters.
struct ParameterRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  friend bool operator==(const ParameterRange&, const ParameterRange&) = default;
};

struct ParameterState {
  std::vector<Tensor*> tensors;
};

}  // namespace quench::nn
