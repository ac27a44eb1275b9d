#pragma once
// Stored tensors as tensors on the CPU, for the readers of safetensors folders.

#include "core/safetensors/safetensors_folder.h"
#include "core/tensor/tensor.h"

namespace quench {

// Values as stored, rows from `first_row` on and as many as `out` has: a contiguous CPU tensor of the stored dtype.
void read_rows(const SafetensorsFolder::Location& stored, const Tensor& out, std::int64_t first_row);

// All of a tensor. Throws corrupt, naming folder and tensor, unless it has this shape and dtype.
[[nodiscard]] Tensor read_entry(const SafetensorsFolder& folder, const SafetensorsFolder::Location& stored,
                                const Shape& shape, DType dtype);

}  // namespace quench
