#pragma once
// ggml Q2_K, Q4_K and Q5_K: 256 elements x ~ code * scale - minimum by groups, whose scales and minima are integers
// under two f16 units.

#include "core/gguf_types/bit_layouts.h"
#include "core/gguf_types/block_format.h"

namespace quench {

void unpack_q2_k(const std::uint8_t* block, UnpackedBlock& out);
void unpack_q4_k(const std::uint8_t* block, UnpackedBlock& out);
void unpack_q5_k(const std::uint8_t* block, UnpackedBlock& out);

// Least weighted squared error (Q2_K without importance: by magnitude) over initial lines of each group, refined by
// least squares; then over neighbouring integers of scale and minimum, and least squares of the units.
void quantize_q2_k(const float* x, const float* importance, std::uint8_t* block);
void quantize_q4_k(const float* x, const float* importance, std::uint8_t* block);
void quantize_q5_k(const float* x, const float* importance, std::uint8_t* block);

inline constexpr BlockFormat kQ2_K{
    BlockType::q2_k, "Q2_K", 10, 10, kSuperBlock, 84, {DType::i4, DType::f32, 16, true}, unpack_q2_k, quantize_q2_k};
inline constexpr BlockFormat kQ4_K{
    BlockType::q4_k, "Q4_K",       12, 14, kSuperBlock, 144, {DType::i4, DType::f32, 32, true, 8},
    unpack_q4_k,     quantize_q4_k};
inline constexpr BlockFormat kQ5_K{
    BlockType::q5_k, "Q5_K", 13, 16, kSuperBlock, 176, {DType::i8, DType::f32, 32, true}, unpack_q5_k, quantize_q5_k};

}  // namespace quench
