#pragma once
// Descriptions of matrices for the tensor memory accelerator of compute capability 9.0.

#include <cuda.h>

#include <array>
#include <cstdint>

#include "core/tensor/tensor.h"

namespace quench::cuda {

// Of a contiguous bf16 tensor [rows, columns] or [batch, rows, columns], whose rows are multiples of 16 bytes, taken in
// boxes of box_rows x box_columns with the 128-byte swizzle; box_columns is 64. Coordinates: column, row, batch.
// Throws unsupported where the driver has no such descriptions.
[[nodiscard]] CUtensorMap make_tensor_map(const Tensor& tensor, int box_rows, int box_columns);

}  // namespace quench::cuda
