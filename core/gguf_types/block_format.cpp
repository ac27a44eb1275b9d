#include "core/gguf_types/block_format.h"

#include <algorithm>
#include <array>

#include "core/gguf_types/affine_super_blocks.h"
#include "core/gguf_types/float4_blocks.h"
#include "core/gguf_types/iq1_blocks.h"
#include "core/gguf_types/iq2_blocks.h"
#include "core/gguf_types/iq3_blocks.h"
#include "core/gguf_types/legacy_blocks.h"
#include "core/gguf_types/nonlinear_blocks.h"
#include "core/gguf_types/symmetric_super_blocks.h"
#include "core/gguf_types/ternary_blocks.h"
#include "core/number/float4.h"

namespace quench {
namespace {

constexpr std::array kFormats = {kQ8_0,  kQ4_0,   kQ4_1, kQ5_0,  kQ5_1,  kQ2_K,  kQ3_K,   kQ4_K,
                                 kQ5_K,  kQ6_K,   kQ8_K, kIq4Nl, kIq4Xs, kIq3S,  kIq3Xxs, kIq2S,
                                 kIq2Xs, kIq2Xxs, kIq1S, kIq1M,  kTq1_0, kTq2_0, kMxfp4,  kNvfp4};

}  // namespace

std::span<const BlockFormat> block_formats() {
  return kFormats;
}

const BlockFormat& block_format(BlockType type) {
  return *std::ranges::find(kFormats, type, &BlockFormat::type);
}

void dequantize_block(const BlockFormat& format, const std::uint8_t* block, float* out) {
  UnpackedBlock codes;
  format.unpack(block, codes);
  const auto [dtype, scales, group, offsets, bias] = format.packed;
  for (std::int64_t i = 0; i < format.elements; ++i) {
    // e2m1 has a negative 0, ggml has not.
    const float value = dtype == DType::f4_e2m1 ? E2m1::decode(static_cast<std::uint8_t>(codes.codes[i])) + 0.0f
                                                : static_cast<float>(codes.codes[i]);
    out[i] = codes.scales[i / group] * value;
    if (offsets) out[i] += codes.offsets[i / group];
  }
}

}  // namespace quench
