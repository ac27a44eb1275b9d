#pragma once
// Small tables of integers on the device, kept by content: the layers of one step share one upload.

#include <cstdint>
#include <span>

#include "core/tensor/tensor.h"

namespace quench::cuda {

// An i32 tensor with these words, ready for work enqueued on `stream` from now on. The words travel as kernel
// parameters: the host neither waits nor keeps them.
[[nodiscard]] Tensor device_table(std::span<const std::int32_t> words, Stream stream);

}  // namespace quench::cuda
