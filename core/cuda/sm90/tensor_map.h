#pragma once
// TMA descriptors (CUtensorMap).

#include <cuda.h>

#include <array>
#include <cstdint>

#include "core/tensor/tensor.h"

namespace quench::cuda {

// Contiguous bf16 or float8 tensor [rows, columns] or [batch, rows, columns]: 128-byte swizzle, boxes of box_rows x
// box_columns (128 bytes); rows: multiples of 16 bytes. Coordinates: column, row, batch. Throws unsupported without
// cuTensorMapEncodeTiled.
[[nodiscard]] CUtensorMap make_tensor_map(const Tensor& tensor, int box_rows, int box_columns);

}  // namespace quench::cuda
