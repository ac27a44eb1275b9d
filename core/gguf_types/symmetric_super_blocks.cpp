#include "core/gguf_types/symmetric_super_blocks.h"

#include <cstring>

#include "core/gguf_types/block_fits.h"

namespace quench {
namespace {

constexpr int kSixteen = 16;

// Sixteen 6-bit scales in 12 bytes.
void put_six_bits(const int* scales, std::uint8_t* out) {
  std::memset(out, 0, 12);
  for (int g = 0; g < kSixteen; ++g) {
    const int code = scales[g] + 32;
    out[g % 8] = static_cast<std::uint8_t>(out[g % 8] | (code & 0xF) << (g / 8 * 4));
    out[8 + g % 4] = static_cast<std::uint8_t>(out[8 + g % 4] | (code >> 4) << (g / 4 * 2));
  }
}

int six_bit_scale(const std::uint8_t* in, int g) {
  return ((in[g % 8] >> (g / 8 * 4) & 0xF) | (in[8 + g % 4] >> (g / 4 * 2) & 3) << 4) - 32;
}

// Numbers of a block whose groups one thread takes; codes from 0, which is the grid's -Zero.
template <class Fit, int Zero>
struct FittedBlock {
  ScaledGroups<Fit::kGroups> groups;
  std::uint8_t codes[kSuperBlock];

  FittedBlock(const float* x, const float* importance) {
    const GroupedBlock<Fit::kSize, Fit::kGroups, typename Fit::PlainWeights> block(x, importance);
    groups = Fit::find(SerialTeam<Fit::kGroups>(), block.x, block.weights);
    for (int g = 0; g < Fit::kGroups; ++g) {
      const float inverse = inverse_scale(groups.unit * static_cast<float>(groups.scales[g]));
      for (int i = 0; i < Fit::kSize; ++i)
        codes[g * Fit::kSize + i] =
            static_cast<std::uint8_t>(static_cast<int>(Fit::Values::nearest(block.x[g][i] * inverse)) + Zero);
    }
  }
};

}  // namespace

void unpack_q3_k(const std::uint8_t* block, UnpackedBlock& out) {
  const float unit = load_half(block + 108);
  for (int g = 0; g < kSixteen; ++g) out.scales[g] = unit * static_cast<float>(six_bit_scale(block + 96, g));
  get_quarters(block + 32, out.codes);
  for (int i = 0; i < kSuperBlock; ++i)
    out.codes[i] = static_cast<std::int8_t>(out.codes[i] - (plane_bit(block, i) == 0 ? 4 : 0));
}

void quantize_q3_k(const float* x, const float* importance, std::uint8_t* block) {
  const FittedBlock<Q3_KFit, 4> found(x, importance);
  std::uint8_t low[kSuperBlock], high[kSuperBlock];
  for (int i = 0; i < kSuperBlock; ++i) {
    low[i] = found.codes[i] & 3;
    high[i] = found.codes[i] >> 2;
  }
  put_planes(high, block);
  put_quarters(low, block + 32);
  put_six_bits(found.groups.scales, block + 96);
  store_half(block + 108, found.groups.unit);
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
  const FittedBlock<Q6_KFit, 32> found(x, importance);
  for (int half = 0; half < 2; ++half) {
    const std::uint8_t* c = found.codes + half * 128;
    for (int i = 0; i < 32; ++i) {
      block[half * 64 + i] = pack_nibbles(c[i], c[i + 64]);
      block[half * 64 + 32 + i] = pack_nibbles(c[i + 32], c[i + 96]);
      block[128 + half * 32 + i] =
          static_cast<std::uint8_t>(c[i] >> 4 | (c[i + 32] >> 4) << 2 | (c[i + 64] >> 4) << 4 | (c[i + 96] >> 4) << 6);
    }
  }
  for (int g = 0; g < kSixteen; ++g) block[192 + g] = static_cast<std::uint8_t>(found.groups.scales[g]);
  store_half(block + 208, found.groups.unit);
}

void unpack_q8_k(const std::uint8_t* block, UnpackedBlock& out) {
  std::memcpy(out.scales, block, sizeof(float));
  std::memcpy(out.codes, block + sizeof(float), kSuperBlock);
}

}  // namespace quench
