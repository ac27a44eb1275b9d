#pragma once
// ggml TQ1_0 and TQ2_0: 256 elements -1, 0 or 1 with an f16 scale; five base-3 digits a byte, or four of two bits.

#include "core/gguf_types/bit_layouts.h"
#include "core/gguf_types/block_format.h"

namespace quench {

void unpack_tq1_0(const std::uint8_t* block, UnpackedBlock& out);
void unpack_tq2_0(const std::uint8_t* block, UnpackedBlock& out);

// The scale and digits of least weighted squared error, exactly; ternary values keep theirs.
void quantize_tq1_0(const float* x, const float* importance, std::uint8_t* block);
void quantize_tq2_0(const float* x, const float* importance, std::uint8_t* block);

inline constexpr BlockFormat kTq1_0{
    BlockType::tq1_0, "TQ1_0",       34, 36, kSuperBlock, 54, {DType::i4, DType::f16, kSuperBlock},
    unpack_tq1_0,     quantize_tq1_0};
inline constexpr BlockFormat kTq2_0{
    BlockType::tq2_0, "TQ2_0",       35, 37, kSuperBlock, 66, {DType::i4, DType::f16, kSuperBlock},
    unpack_tq2_0,     quantize_tq2_0};

}  // namespace quench
