#pragma once
// Values that a file may hold: no NaN, no infinity.

#include <string_view>

#include "core/tensor/tensor.h"

namespace quench {

// Whether all values of a contiguous f32, bf16 or f16 tensor on the CPU are finite.
[[nodiscard]] bool is_finite(const Tensor& values);
// Throws nonfinite, with the tensor's name and the first such value, unless all values of `stored` are finite. `source`
// are the values that were rounded to `stored`; where those are finite the error says that the dtype cannot hold them.
void require_finite(const Tensor& stored, const Tensor& source, std::string_view name);

}  // namespace quench
