#pragma once
// Descriptions of matrices for the tensor memory accelerator of compute capability 9.0.

#include <cuda.h>

#include <array>
#include <cstdint>

#include "core/tensor/tensor.h"

namespace quench::cuda {

// Of a contiguous tensor [rows, columns] or [batch, rows, columns] of bf16 or float8, whose rows are multiples of 16
// bytes, taken in boxes of box_rows x box_columns with the 128-byte swizzle; box_columns are 128 bytes. Coordinates:
// column, row, batch.
// Throws unsupported where the driver has no such descriptions.
[[nodiscard]] CUtensorMap make_tensor_map(const Tensor& tensor, int box_rows, int box_columns);

}  // namespace quench::cuda
