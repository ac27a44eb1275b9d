#pragma once
// Tensors of GGUF blocks as packed matrices.

#include <optional>
#include <string_view>

#include "core/gguf_types/block_format.h"
#include "core/tensor/packed_matrix.h"

namespace quench {

// The first block with a scale or offset that is not finite.
struct BadBlock {
  std::int64_t row, column;  // place of its first element
  float scale;
};
[[nodiscard]] std::optional<BadBlock> find_bad_block(const Tensor& blocks, const BlockFormat& format);

// Equal to ggml's up to rounding of scale products. Throws corrupt naming `source` (the tensor) and block for
// non-finite scales.
[[nodiscard]] PackedMatrix pack_blocks(const Tensor& blocks, BlockType type, std::int64_t columns,
                                       std::string_view source);

}  // namespace quench
