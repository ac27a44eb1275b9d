#pragma once
// Check of exported values: no NaN, no infinity.

#include <string_view>

#include "core/tensor/tensor.h"

namespace quench {

// True if all values of a contiguous f32, bf16 or f16 CPU tensor are finite.
[[nodiscard]] bool is_finite(const Tensor& values);
// Throws nonfinite, naming the tensor and the first non-finite value of `stored`. `source`: values before rounding; if
// finite, the error reports overflow of the dtype.
void require_finite(const Tensor& stored, const Tensor& source, std::string_view name);

}  // namespace quench
