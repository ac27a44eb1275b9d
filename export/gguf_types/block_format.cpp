#include "export/gguf_types/block_format.h"

#include <algorithm>
#include <array>

#include "core/number/float4.h"
#include "export/gguf_types/float4_blocks.h"
#include "export/gguf_types/legacy_blocks.h"
#include "export/gguf_types/super_blocks.h"

namespace quench {
namespace {

constexpr std::array kFormats = {kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ4_K, kQ6_K, kMxfp4};

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
    const float value = dtype == DType::f4_e2m1 ? E2m1::decode(static_cast<std::uint8_t>(codes.codes[i]))
                                                : static_cast<float>(codes.codes[i]);
    out[i] = codes.scales[i / group] * value;
    if (offsets) out[i] += codes.offsets[i / group];
  }
}

}  // namespace quench
