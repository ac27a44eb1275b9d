#pragma once
// The order of query and key rows: Hugging Face rotates element i of a head with element i + D/2, llama.cpp's
// interleaved rotation element 2i with 2i + 1.

#include "core/tensor/tensor.h"

namespace quench {

// Rows of [heads * D, ..] or elements of [heads * D], contiguous, on the CPU, reordered within each head.
[[nodiscard]] Tensor interleave_heads(const Tensor& rows, std::int64_t heads);
// The inverse.
[[nodiscard]] Tensor separate_heads(const Tensor& rows, std::int64_t heads);

}  // namespace quench
