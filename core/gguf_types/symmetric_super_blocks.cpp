#include "core/gguf_types/symmetric_super_blocks.h"

#include <cstring>

#include "core/gguf_types/block_layouts.h"

namespace quench {
namespace {

constexpr int kSixteen = 16;

int six_bit_scale(const std::uint8_t* in, int g) {
  return ((in[g % 8] >> (g / 8 * 4) & 0xF) | (in[8 + g % 4] >> (g / 4 * 2) & 3) << 4) - 32;
}

}  // namespace

void unpack_q3_k(const std::uint8_t* block, UnpackedBlock& out) {
  const float unit = load_half(block + 108);
  for (int g = 0; g < kSixteen; ++g) out.scales[g] = unit * static_cast<float>(six_bit_scale(block + 96, g));
  get_quarters(block + 32, out.codes);
  for (int i = 0; i < kSuperBlock; ++i)
    out.codes[i] = static_cast<std::int8_t>(out.codes[i] - (plane_bit(block, i) == 0 ? 4 : 0));
}

void quantize_q3_k(const float* x, const float* importance, std::uint8_t* block) {
  fit_block<Q3_KFit, Q3_KLayout>(x, importance, block);
}

void unpack_q6_k(const std::uint8_t* block, UnpackedBlock& out) {
  const float unit = load_half(block + 208);
  for (int g = 0; g < kSixteen; ++g)
    out.scales[g] = unit * static_cast<float>(static_cast<std::int8_t>(block[192 + g]));
  for (int half = 0; half < 2; ++half) {
    const std::uint8_t *low = block + half * 64, *high = block + 128 + half * 32;
    for (int i = 0; i < 32; ++i) {
      const int quarters[4] = {low[i] & 0xF, low[i + 32] & 0xF, low[i] >> 4, low[i + 32] >> 4};
      for (int q = 0; q < 4; ++q)
        out.codes[half * 128 + q * 32 + i] =
            static_cast<std::int8_t>((quarters[q] | (high[i] >> (2 * q) & 3) << 4) - 32);
    }
  }
}

void quantize_q6_k(const float* x, const float* importance, std::uint8_t* block) {
  fit_block<Q6_KFit, Q6_KLayout>(x, importance, block);
}

void unpack_q8_k(const std::uint8_t* block, UnpackedBlock& out) {
  std::memcpy(out.scales, block, sizeof(float));
  std::memcpy(out.codes, block + sizeof(float), kSuperBlock);
}

}  // namespace quench
