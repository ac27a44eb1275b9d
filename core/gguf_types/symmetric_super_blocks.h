#pragma once
// ggml Q3_K, Q6_K and Q8_K: 256 elements x ~ code * scale; in the first two by groups of 16, whose signed scales are
// integers under an f16 unit.

#include "core/gguf_types/bit_layouts.h"
#include "core/gguf_types/block_format.h"

namespace quench {

void unpack_q3_k(const std::uint8_t* block, UnpackedBlock& out);
void unpack_q6_k(const std::uint8_t* block, UnpackedBlock& out);
// ggml's type of activations: f32 scale, 8-bit codes, sums that are not read.
void unpack_q8_k(const std::uint8_t* block, UnpackedBlock& out);

// Least weighted squared error, see super_scales.h; Q3_K without importance: by the root of the magnitude.
void quantize_q3_k(const float* x, const float* importance, std::uint8_t* block);
void quantize_q6_k(const float* x, const float* importance, std::uint8_t* block);

inline constexpr BlockFormat kQ3_K{BlockType::q3_k, "Q3_K",       11, 11, kSuperBlock, 110, {DType::i4, DType::f32, 16},
                                   unpack_q3_k,     quantize_q3_k};
inline constexpr BlockFormat kQ6_K{BlockType::q6_k, "Q6_K",       14, 18, kSuperBlock, 210, {DType::i8, DType::f32, 16},
                                   unpack_q6_k,     quantize_q6_k};
inline constexpr BlockFormat kQ8_K{
    BlockType::q8_k, "Q8_K", 15, 0, kSuperBlock, 292, {DType::i8, DType::f32, kSuperBlock}, unpack_q8_k};

}  // namespace quench
