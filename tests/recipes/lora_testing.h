#pragma once
// Values for the tests of adapters.

#include "core/ops/elementwise.h"
#include "nn/modules/parameter.h"
#include "tests/recipes/float8_testing.h"
#include "tests/testing.h"

namespace quench::testing {

inline void fill(nn::Parameter& parameter, std::uint64_t stream, float scale) {
  Tensor value = parameter.variable.value();
  const Tensor numbers = random_matrix(value.size(0), value.size(1), stream, scale, DType::f32);
  cast({numbers, value});
  parameter.mark_changed();
}

}  // namespace quench::testing
