#pragma once
// ggml IQ3_XXS and IQ3_S: 256 elements as signs and points of a codebook of 4 magnitudes, 4-bit scales by 32 elements,
// an f16 unit.

#include "core/gguf_types/bit_layouts.h"
#include "core/gguf_types/block_format.h"

namespace quench {

void unpack_iq3_xxs(const std::uint8_t* block, UnpackedBlock& out);
void unpack_iq3_s(const std::uint8_t* block, UnpackedBlock& out);

// Least weighted squared error, see codebook_search.h.
void quantize_iq3_xxs(const float* x, const float* importance, std::uint8_t* block);
void quantize_iq3_s(const float* x, const float* importance, std::uint8_t* block);

inline constexpr BlockFormat kIq3Xxs{
    BlockType::iq3_xxs, "IQ3_XXS",        18,  23, kSuperBlock, 98, {DType::i8, DType::f32, 32},
    unpack_iq3_xxs,     quantize_iq3_xxs, true};
inline constexpr BlockFormat kIq3S{
    BlockType::iq3_s, "IQ3_S", 21, 26, kSuperBlock, 110, {DType::i8, DType::f32, 32}, unpack_iq3_s, quantize_iq3_s};

}  // namespace quench
