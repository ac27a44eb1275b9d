#pragma once
// ggml MXFP4 and NVFP4: e2m1 elements, 32 with an E8M0 scale, or four groups of 16 with e4m3 scales.

#include "core/gguf_types/bit_layouts.h"
#include "core/gguf_types/block_format.h"

namespace quench {

void unpack_mxfp4(const std::uint8_t* block, UnpackedBlock& out);
// Unsigned scales; 0x7F stands for 0, as in ggml.
void unpack_nvfp4(const std::uint8_t* block, UnpackedBlock& out);
// Bit-identical to ggml's reference.
void quantize_mxfp4(const float* x, const float* importance, std::uint8_t* block);

inline constexpr BlockFormat kMxfp4{
    BlockType::mxfp4, "MXFP4",       39, 38, kSmallBlock, 17, {DType::f4_e2m1, DType::bf16, kSmallBlock},
    unpack_mxfp4,     quantize_mxfp4};
inline constexpr BlockFormat kNvfp4{BlockType::nvfp4, "NVFP4", 40, 39, 64, 36, {DType::f4_e2m1, DType::bf16, 16},
                                    unpack_nvfp4};

}  // namespace quench
