#pragma once
// The block types of GGUF files that hold quantized weights: so many elements of a row and their scales in so many
// bytes. Source: ggml-common.h and ggml-quants.c of ggml for layouts; Q8_0, Q4_0 and MXFP4 are its reference codes bit
// for bit, Q4_K and Q6_K choose their scales by a search of their own.

#include <cstdint>
#include <span>
#include <string_view>

#include "core/tensor/packed_matrix.h"

namespace quench {

enum class BlockType : std::uint8_t {
  q8_0,   // 32 elements: f16 scale, 8-bit codes
  q4_0,   // 32: f16 scale, 4-bit codes
  q4_k,   // 256: eight groups of 32 with 6-bit scale and minimum under two f16 scales, 4-bit codes
  q6_k,   // 256: sixteen groups of 16 with an 8-bit scale under an f16 scale, 6-bit codes
  mxfp4,  // 32: E8M0 scale, e2m1 codes
};

struct BlockFormat {
  BlockType type;
  std::string_view name;  // as ggml calls it
  std::uint32_t ggml_type;
  std::uint32_t file_type;  // general.file_type of a file that holds mainly these
  std::int64_t elements;    // of a block
  std::int64_t bytes;
  void (*quantize)(const float* x, std::uint8_t* block);  // one block of finite values
};

[[nodiscard]] std::span<const BlockFormat> block_formats();
[[nodiscard]] const BlockFormat& block_format(BlockType type);

// Blocks of a weight f32 or bf16 [N,K], u8 [N, K / elements * bytes]; K is a multiple of the elements.
[[nodiscard]] Tensor quantize_blocks(const Tensor& weight, BlockType type);
// The form that linear layers compute from; values are those that ggml computes, up to the rounding of scales times
// scales. Throws corrupt, naming `source` (the tensor), for scales that are not finite.
[[nodiscard]] PackedMatrix pack_blocks(const Tensor& blocks, BlockType type, std::int64_t columns,
                                       std::string_view source);

}  // namespace quench
