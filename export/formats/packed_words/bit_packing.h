#pragma once
// Integers of 1 to 8 bits in int32 words, as compressed-tensors' pack-quantized (compressors/pack_quantized): value +
// 2^(bits - 1), a little-endian bit stream without padding.

#include "core/tensor/tensor.h"

namespace quench {

// i8 [N,K] to i32 [N, ceil(K * bits / 32)].
[[nodiscard]] Tensor pack_rows(const Tensor& codes, int bits);
// Inverse, rows of `columns` elements.
[[nodiscard]] Tensor unpack_rows(const Tensor& words, int bits, std::int64_t columns);

// Along the first axis: f32 integers [N,G] to i32 [ceil(N * bits / 32), G], and back to [rows, G].
[[nodiscard]] Tensor pack_zero_points(const Tensor& zero_points, int bits);
[[nodiscard]] Tensor unpack_zero_points(const Tensor& words, int bits, std::int64_t rows);

}  // namespace quench
