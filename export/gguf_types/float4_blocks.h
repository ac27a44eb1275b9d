#pragma once
// ggml MXFP4: 32 e2m1 elements with an E8M0 scale.

#include "export/gguf_types/block_format.h"
#include "export/gguf_types/nibbles.h"

namespace quench {

void unpack_mxfp4(const std::uint8_t* block, UnpackedBlock& out);
// Bit-identical to ggml's reference.
void quantize_mxfp4(const float* x, const float* importance, std::uint8_t* block);

inline constexpr BlockFormat kMxfp4{
    BlockType::mxfp4, "MXFP4",       39, 38, kSmallBlock, 17, {DType::f4_e2m1, DType::bf16, kSmallBlock},
    unpack_mxfp4,     quantize_mxfp4};

}  // namespace quench
