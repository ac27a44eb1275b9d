#pragma once
// ggml Q4_K and Q6_K: 256 elements, two-level scales.

#include "export/gguf_types/block_format.h"
#include "export/gguf_types/nibbles.h"

namespace quench {

// x ~ code * scale - minimum by groups of 32, codes 0 to 15, 6-bit scales and minima: least weighted squared error over
// initial scales, each refined by least squares.
void quantize_q4_k(const float* x, const float* importance, std::uint8_t* block);
void unpack_q4_k(const std::uint8_t* block, UnpackedBlock& out);

// x ~ code * scale by groups of 16, codes -32 to 31, 8-bit scales; same search.
void quantize_q6_k(const float* x, const float* importance, std::uint8_t* block);
void unpack_q6_k(const std::uint8_t* block, UnpackedBlock& out);

inline constexpr BlockFormat kQ4_K{
    BlockType::q4_k, "Q4_K",       12, 14, kSuperBlock, 144, {DType::i4, DType::f32, 32, true, 8},
    unpack_q4_k,     quantize_q4_k};
inline constexpr BlockFormat kQ6_K{BlockType::q6_k, "Q6_K",       14, 18, kSuperBlock, 210, {DType::i8, DType::f32, 16},
                                   unpack_q6_k,     quantize_q6_k};

}  // namespace quench
