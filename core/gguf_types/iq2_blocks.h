#pragma once
// ggml IQ2_XXS, IQ2_XS and IQ2_S: 256 elements as signs and points of a codebook of 8 magnitudes, 4-bit scales by 32 or
// 16 elements, an f16 unit.

#include "core/gguf_types/bit_layouts.h"
#include "core/gguf_types/block_format.h"

namespace quench {

void unpack_iq2_xxs(const std::uint8_t* block, UnpackedBlock& out);
void unpack_iq2_xs(const std::uint8_t* block, UnpackedBlock& out);
void unpack_iq2_s(const std::uint8_t* block, UnpackedBlock& out);

// Least weighted squared error, see codebook_search.h.
void quantize_iq2_xxs(const float* x, const float* importance, std::uint8_t* block);
void quantize_iq2_xs(const float* x, const float* importance, std::uint8_t* block);
void quantize_iq2_s(const float* x, const float* importance, std::uint8_t* block);

inline constexpr BlockFormat kIq2Xxs{
    BlockType::iq2_xxs, "IQ2_XXS",        16,  19, kSuperBlock, 66, {DType::i8, DType::f32, 32},
    unpack_iq2_xxs,     quantize_iq2_xxs, true};
inline constexpr BlockFormat kIq2Xs{
    BlockType::iq2_xs, "IQ2_XS",        17,  20, kSuperBlock, 74, {DType::i8, DType::f32, 16},
    unpack_iq2_xs,     quantize_iq2_xs, true};
inline constexpr BlockFormat kIq2S{
    BlockType::iq2_s, "IQ2_S",        22,  28, kSuperBlock, 82, {DType::i8, DType::f32, 16},
    unpack_iq2_s,     quantize_iq2_s, true};

}  // namespace quench
