#pragma once
// Tensors of GGUF blocks: from weights, and to packed matrices.

#include <span>
#include <string_view>

#include "core/gguf_types/block_format.h"
#include "core/tensor/packed_matrix.h"

namespace quench {

// f32 or bf16 [N,K] to u8 [N, K / elements * bytes]; K is a multiple of the block size; of a type that is not read
// only. `importance`: a non-negative factor of the squared error of each of K columns, or empty. Rows in parallel, the
// result does not depend on threads. Throws nonfinite naming `name` (the tensor) and the value for which a scale
// overflows, invalid_argument for an importance of another length, of negative or non-finite values.
[[nodiscard]] Tensor quantize_blocks(const Tensor& weight, BlockType type, std::string_view name,
                                     std::span<const float> importance = {});
// Equal to ggml's up to rounding of scale products. Throws corrupt naming `source` (the tensor) and block for
// non-finite scales.
[[nodiscard]] PackedMatrix pack_blocks(const Tensor& blocks, BlockType type, std::int64_t columns,
                                       std::string_view source);

}  // namespace quench
