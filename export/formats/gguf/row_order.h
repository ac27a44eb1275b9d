#pragma once
// Row order of query and key: Hugging Face rotates element i of a head with i + D/2, interleaved RoPE 2i with 2i + 1.

#include "core/tensor/tensor.h"

namespace quench {

// Rows of [heads * D, ..] or elements of [heads * D], within each head; contiguous, CPU.
[[nodiscard]] Tensor interleave_heads(const Tensor& rows, std::int64_t heads);
// Inverse.
[[nodiscard]] Tensor separate_heads(const Tensor& rows, std::int64_t heads);

}  // namespace quench
