#pragma once
// GGUF block types (ggml-common.h, ggml-quants.c of ggml). Q8_0, Q4_0 and MXFP4 are bit-identical to ggml's reference;
// Q4_K and Q6_K use their own scale search; Q4_1, Q5_0 and Q5_1 are read only.

#include <cstdint>
#include <span>
#include <string_view>

#include "core/tensor/packed_matrix.h"

namespace quench {

enum class BlockType : std::uint8_t {
  q8_0,   // 32 elements: f16 scale, 8-bit values
  q4_0,   // 32: f16 scale, 4-bit values
  q4_1,   // 32: f16 scale and minimum, 4-bit values
  q5_0,   // 32: f16 scale, 5-bit values
  q5_1,   // 32: f16 scale and minimum, 5-bit values
  q4_k,   // 256: eight groups of 32 with 6-bit scale and minimum, two f16 super-scales, 4-bit values
  q6_k,   // 256: sixteen groups of 16 with 8-bit scale, f16 super-scale, 6-bit values
  mxfp4,  // 32: E8M0 scale, e2m1 values
};

struct BlockFormat {
  BlockType type;
  std::string_view name;  // ggml's
  std::uint32_t ggml_type;
  std::uint32_t file_type;  // general.file_type of mainly this type
  std::int64_t elements;    // per block
  std::int64_t bytes;
  void (*quantize)(const float* x, std::uint8_t* block);  // one block, finite; null: read only
};

[[nodiscard]] std::span<const BlockFormat> block_formats();
[[nodiscard]] const BlockFormat& block_format(BlockType type);

// f32 or bf16 [N,K] to u8 [N, K / elements * bytes]; K is a multiple of the block size; of a type that is not read
// only. Throws nonfinite naming `name` (the tensor) and the value for which a scale overflows.
[[nodiscard]] Tensor quantize_blocks(const Tensor& weight, BlockType type, std::string_view name);
// Equal to ggml's up to rounding of scale products. Throws corrupt naming `source` (the tensor) and block for
// non-finite scales.
[[nodiscard]] PackedMatrix pack_blocks(const Tensor& blocks, BlockType type, std::int64_t columns,
                                       std::string_view source);

}  // namespace quench
