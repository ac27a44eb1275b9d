#pragma once
// ggml Q8_0, Q4_0, Q4_1, Q5_0, Q5_1: 32 elements with an f16 scale and, in the latter of each pair, an f16 minimum.

#include "core/gguf_types/bit_layouts.h"
#include "core/gguf_types/block_format.h"

namespace quench {

void unpack_q8_0(const std::uint8_t* block, UnpackedBlock& out);
void unpack_q4_0(const std::uint8_t* block, UnpackedBlock& out);
void unpack_q4_1(const std::uint8_t* block, UnpackedBlock& out);
void unpack_q5_0(const std::uint8_t* block, UnpackedBlock& out);
void unpack_q5_1(const std::uint8_t* block, UnpackedBlock& out);

// Bit-identical to ggml's reference, which has no use for importance.
void quantize_q8_0(const float* x, const float* importance, std::uint8_t* block);
// Without importance, bit-identical to ggml's reference; with it, least weighted squared error over initial scales.
void quantize_q4_0(const float* x, const float* importance, std::uint8_t* block);
// Least weighted squared error over initial scales, or lines, each refined by least squares.
void quantize_q4_1(const float* x, const float* importance, std::uint8_t* block);
void quantize_q5_0(const float* x, const float* importance, std::uint8_t* block);
void quantize_q5_1(const float* x, const float* importance, std::uint8_t* block);

inline constexpr BlockFormat kQ8_0{
    BlockType::q8_0, "Q8_0", 8, 7, kSmallBlock, 34, {DType::i8, DType::f16, kSmallBlock}, unpack_q8_0, quantize_q8_0};
inline constexpr BlockFormat kQ4_0{
    BlockType::q4_0, "Q4_0", 2, 2, kSmallBlock, 18, {DType::i4, DType::f16, kSmallBlock}, unpack_q4_0, quantize_q4_0};
inline constexpr BlockFormat kQ4_1{
    BlockType::q4_1, "Q4_1",       3, 3, kSmallBlock, 20, {DType::i4, DType::f16, kSmallBlock, true, 8},
    unpack_q4_1,     quantize_q4_1};
inline constexpr BlockFormat kQ5_0{
    BlockType::q5_0, "Q5_0", 6, 8, kSmallBlock, 22, {DType::i8, DType::f16, kSmallBlock}, unpack_q5_0, quantize_q5_0};
inline constexpr BlockFormat kQ5_1{
    BlockType::q5_1, "Q5_1",       7, 9, kSmallBlock, 24, {DType::i8, DType::f16, kSmallBlock, true},
    unpack_q5_1,     quantize_q5_1};

}  // namespace quench
