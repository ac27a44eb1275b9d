#pragma once
// Transfers of large tensors through pinned host buffers: host work on one part overlaps the copy of another.

#include <cstddef>
#include <functional>
#include <span>

#include "core/tensor/tensor.h"

namespace quench {

// Calls consume(bytes) for consecutive parts of a contiguous tensor, in order. Bytes are valid during the call.
void read_by_parts(const Tensor& source, const std::function<void(std::span<const std::byte>)>& consume);

// Fills rows (axis 0) of a contiguous tensor: produce(rows, first) writes `rows`, a CPU tensor of dtype `dtype`, which
// is converted on the destination's device. Without meta destinations.
void write_by_rows(const Tensor& destination, DType dtype,
                   const std::function<void(const Tensor& rows, std::int64_t first)>& produce);

}  // namespace quench
