#pragma once
// Checks for NaN, infinity and overflow of stored values.

#include <string_view>

#include "core/tensor/tensor.h"

namespace quench {

// Contiguous f32, bf16 or f16, CPU.
[[nodiscard]] bool is_finite(const Tensor& values);
// Throws nonfinite, naming the tensor and the first such value of `stored`. `source`: before rounding; if finite, the
// error reports overflow of the dtype.
void require_finite(const Tensor& stored, const Tensor& source, std::string_view name);

}  // namespace quench
