#pragma once
// ggml IQ1_S and IQ1_M, which are read only: 256 elements as points of a codebook of 8 ternary values, shifted by an
// eighth up or down; 3-bit scales by 32 or 16 elements, an f16 unit. Codes are in eighths.

#include "core/gguf_types/bit_layouts.h"
#include "core/gguf_types/block_format.h"

namespace quench {

void unpack_iq1_s(const std::uint8_t* block, UnpackedBlock& out);
void unpack_iq1_m(const std::uint8_t* block, UnpackedBlock& out);

inline constexpr BlockFormat kIq1S{BlockType::iq1_s, "IQ1_S", 19, 24, kSuperBlock, 50, {DType::i8, DType::f32, 32},
                                   unpack_iq1_s};
inline constexpr BlockFormat kIq1M{BlockType::iq1_m, "IQ1_M", 29, 31, kSuperBlock, 56, {DType::i8, DType::f32, 16},
                                   unpack_iq1_m};

}  // namespace quench
