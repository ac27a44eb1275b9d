#pragma once
// Cache of small device tables by content: one upload per step.

#include <cstdint>
#include <span>

#include "core/tensor/tensor.h"

namespace quench::cuda {

// i32, usable on `stream`. Kernel parameters: no host synchronization; words may be freed on return.
[[nodiscard]] Tensor device_table(std::span<const std::int32_t> words, Stream stream);

}  // namespace quench::cuda
