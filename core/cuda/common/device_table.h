#pragma once
// Cache of small device tables, keyed by content: one upload for the layers of a step.

#include <cstdint>
#include <span>

#include "core/tensor/tensor.h"

namespace quench::cuda {

// i32 tensor with these words, usable on `stream`. Passed as kernel parameters: no host synchronization, and the words
// may be freed on return.
[[nodiscard]] Tensor device_table(std::span<const std::int32_t> words, Stream stream);

}  // namespace quench::cuda
