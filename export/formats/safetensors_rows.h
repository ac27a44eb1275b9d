#pragma once
// Rows and whole tensors of a safetensors folder.

#include "core/safetensors/safetensors_folder.h"
#include "core/tensor/tensor.h"

namespace quench {

// From row `first_row`, as many rows as `out`: contiguous, CPU, stored dtype.
void read_rows(const SafetensorsFolder::Location& stored, const Tensor& out, std::int64_t first_row);

// Throws corrupt, naming folder and tensor, on another shape or dtype.
[[nodiscard]] Tensor read_entry(const SafetensorsFolder& folder, const SafetensorsFolder::Location& stored,
                                const Shape& shape, DType dtype);

}  // namespace quench
