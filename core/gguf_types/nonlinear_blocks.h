#pragma once
// ggml IQ4_NL and IQ4_XS: 4-bit codes of sixteen fixed values, denser around 0; 32 elements with an f16 scale, or 256
// in groups of 32 whose 6-bit scales have an f16 unit.

#include "core/gguf_types/bit_layouts.h"
#include "core/gguf_types/block_format.h"

namespace quench {

void unpack_iq4_nl(const std::uint8_t* block, UnpackedBlock& out);
void unpack_iq4_xs(const std::uint8_t* block, UnpackedBlock& out);

// Least weighted squared error over initial scales, see scale_search.h and super_scales.h; without importance weighted
// by magnitude.
void quantize_iq4_nl(const float* x, const float* importance, std::uint8_t* block);
void quantize_iq4_xs(const float* x, const float* importance, std::uint8_t* block);

inline constexpr BlockFormat kIq4Nl{
    BlockType::iq4_nl, "IQ4_NL",       20, 25, kSmallBlock, 18, {DType::i8, DType::f16, kSmallBlock},
    unpack_iq4_nl,     quantize_iq4_nl};
inline constexpr BlockFormat kIq4Xs{
    BlockType::iq4_xs, "IQ4_XS", 23, 30, kSuperBlock, 136, {DType::i8, DType::f32, 32}, unpack_iq4_xs, quantize_iq4_xs};

}  // namespace quench
