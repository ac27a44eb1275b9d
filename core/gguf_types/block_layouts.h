#pragma once
// Bytes of GGUF block types from their numbers (ggml-common.h of ggml): the same code on CPU and GPU, one thread a
// block.

#include "core/gguf_types/bit_layouts.h"
#include "core/gguf_types/block_fits.h"

namespace quench {

// A block's bytes under a fit, by one thread. importance: factors of squared errors, or null.
template <class Fit, class Layout>
void fit_block(const float* x, const float* importance, std::uint8_t* block) {
  const GroupedBlock<Fit::kSize, Fit::kGroups, typename Fit::PlainWeights> grouped(x, importance);
  const SerialTeam<Fit::kGroups> team;
  BlockNumbers<Fit::kSize, Fit::kGroups> numbers;
  Fit::put(team, Fit::find(team, grouped.x, grouped.weights), grouped.x, numbers);
  Layout::pack(numbers, block);
}

struct Q8_0Layout {
  static constexpr int kBytes = 34;
  static QUENCH_TEAM_INLINE void pack(const BlockNumbers<32, 1>& in, std::uint8_t* block) {
    store_half(block, in.unit);
    for (int i = 0; i < 32; ++i) block[2 + i] = in.codes[i];
  }
};

// Q4_0, IQ4_NL.
struct HalfBytesLayout {
  static constexpr int kBytes = 18;
  static QUENCH_TEAM_INLINE void pack(const BlockNumbers<32, 1>& in, std::uint8_t* block) {
    store_half(block, in.unit);
    put_halves(in.codes, 32, block + 2);
  }
};

struct Q4_1Layout {
  static constexpr int kBytes = 20;
  static QUENCH_TEAM_INLINE void pack(const BlockNumbers<32, 1>& in, std::uint8_t* block) {
    store_half(block, in.unit);
    store_half(block + 2, in.minimum);
    put_halves(in.codes, 32, block + 4);
  }
};

// Four bytes of fifth bits before the nibbles.
QUENCH_TEAM_INLINE void put_five_bits(const std::uint8_t* codes, std::uint8_t* out) {
  for (int byte = 0; byte < 4; ++byte) {
    int bits = 0;
    for (int i = 0; i < 8; ++i) bits |= (codes[byte * 8 + i] >> 4) << i;
    out[byte] = static_cast<std::uint8_t>(bits);
  }
  put_halves(codes, 32, out + 4);
}

struct Q5_0Layout {
  static constexpr int kBytes = 22;
  static QUENCH_TEAM_INLINE void pack(const BlockNumbers<32, 1>& in, std::uint8_t* block) {
    store_half(block, in.unit);
    put_five_bits(in.codes, block + 2);
  }
};

struct Q5_1Layout {
  static constexpr int kBytes = 24;
  static QUENCH_TEAM_INLINE void pack(const BlockNumbers<32, 1>& in, std::uint8_t* block) {
    store_half(block, in.unit);
    store_half(block + 2, in.minimum);
    put_five_bits(in.codes, block + 4);
  }
};

struct Q2_KLayout {
  static constexpr int kBytes = 84;
  static QUENCH_TEAM_INLINE void pack(const BlockNumbers<16, 16>& in, std::uint8_t* block) {
    for (int g = 0; g < 16; ++g) block[g] = static_cast<std::uint8_t>(in.scales[g] | in.minima[g] << 4);
    put_quarters<0>(in.codes, block + 16);
    store_half(block + 80, in.unit);
    store_half(block + 82, in.minimum);
  }
};

struct Q3_KLayout {
  static constexpr int kBytes = 110;
  static QUENCH_TEAM_INLINE void pack(const BlockNumbers<16, 16>& in, std::uint8_t* block) {
    put_planes<2>(in.codes, block);
    put_quarters<0>(in.codes, block + 32);
    // Sixteen 6-bit scales in 12 bytes.
    for (int byte = 0; byte < 12; ++byte) {
      int bits = 0;
      if (byte < 8)
        bits = ((in.scales[byte] + 32) & 0xF) | ((in.scales[byte + 8] + 32) & 0xF) << 4;
      else
        for (int q = 0; q < 4; ++q) bits |= ((in.scales[q * 4 + byte - 8] + 32) >> 4) << (2 * q);
      block[96 + byte] = static_cast<std::uint8_t>(bits);
    }
    store_half(block + 108, in.unit);
  }
};

// Units, and eight 6-bit scales and minima in 12 bytes.
QUENCH_TEAM_INLINE void put_affine_head(const BlockNumbers<32, 8>& in, std::uint8_t* block) {
  store_half(block, in.unit);
  store_half(block + 2, in.minimum);
  for (int j = 0; j < 4; ++j) {
    block[4 + j] = static_cast<std::uint8_t>(in.scales[j] | (in.scales[j + 4] >> 4) << 6);
    block[8 + j] = static_cast<std::uint8_t>(in.minima[j] | (in.minima[j + 4] >> 4) << 6);
    block[12 + j] = static_cast<std::uint8_t>((in.scales[j + 4] & 0xF) | (in.minima[j + 4] & 0xF) << 4);
  }
}

inline constexpr int kNibblePair = 64;  // elements that share 32 bytes of Q4_K and Q5_K

struct Q4_KLayout {
  static constexpr int kBytes = 144;
  static QUENCH_TEAM_INLINE void pack(const BlockNumbers<32, 8>& in, std::uint8_t* block) {
    put_affine_head(in, block);
    for (int pair = 0; pair < 4; ++pair) put_halves(in.codes + pair * kNibblePair, kNibblePair, block + 16 + pair * 32);
  }
};

struct Q5_KLayout {
  static constexpr int kBytes = 176;
  static QUENCH_TEAM_INLINE void pack(const BlockNumbers<32, 8>& in, std::uint8_t* block) {
    put_affine_head(in, block);
    put_planes<4>(in.codes, block + 16);
    for (int pair = 0; pair < 4; ++pair) put_halves(in.codes + pair * kNibblePair, kNibblePair, block + 48 + pair * 32);
  }
};

struct Q6_KLayout {
  static constexpr int kBytes = 210;
  static QUENCH_TEAM_INLINE void pack(const BlockNumbers<16, 16>& in, std::uint8_t* block) {
    for (int half = 0; half < 2; ++half) {
      const std::uint8_t* c = in.codes + half * 128;
      for (int i = 0; i < 32; ++i) {
        block[half * 64 + i] = pack_nibbles(c[i], c[i + 64]);
        block[half * 64 + 32 + i] = pack_nibbles(c[i + 32], c[i + 96]);
        block[128 + half * 32 + i] = static_cast<std::uint8_t>(c[i] >> 4 | (c[i + 32] >> 4) << 2 |
                                                               (c[i + 64] >> 4) << 4 | (c[i + 96] >> 4) << 6);
      }
    }
    for (int g = 0; g < 16; ++g) block[192 + g] = static_cast<std::uint8_t>(in.scales[g]);
    store_half(block + 208, in.unit);
  }
};

struct Iq4XsLayout {
  static constexpr int kBytes = 136;
  static QUENCH_TEAM_INLINE void pack(const BlockNumbers<32, 8>& in, std::uint8_t* block) {
    store_half(block, in.unit);
    for (int byte = 0; byte < 2; ++byte) {
      int bits = 0;
      for (int q = 0; q < 4; ++q) bits |= ((in.scales[byte * 4 + q] + 32) >> 4) << (2 * q);
      block[2 + byte] = static_cast<std::uint8_t>(bits);
    }
    for (int g = 0; g < 8; g += 2)
      block[4 + g / 2] =
          pack_nibbles(static_cast<std::uint8_t>(in.scales[g] + 32), static_cast<std::uint8_t>(in.scales[g + 1] + 32));
    for (int g = 0; g < 8; ++g) put_halves(in.codes + g * 32, 32, block + 8 + g * 16);
  }
};

struct Tq1_0Layout {
  static constexpr int kBytes = 54;
  // `count` bytes hold `digits` runs of as many elements each, the first run as the highest digit.
  static QUENCH_TEAM_INLINE void pack_run(const std::uint8_t* codes, int count, int digits, std::uint8_t* out) {
    constexpr int kNumbers = 243;  // 3^5
    for (int i = 0; i < count; ++i) {
      int number = 0;
      for (int digit = 0; digit < 5; ++digit) number = number * 3 + (digit < digits ? codes[digit * count + i] : 0);
      out[i] = static_cast<std::uint8_t>((number * 256 + kNumbers - 1) / kNumbers);  // rounded up
    }
  }
  static QUENCH_TEAM_INLINE void pack(const BlockNumbers<32, 8>& in, std::uint8_t* block) {
    pack_run(in.codes, 32, 5, block);
    pack_run(in.codes + 160, 16, 5, block + 32);
    pack_run(in.codes + 240, 4, 4, block + 48);
    store_half(block + 52, in.unit);
  }
};

struct Tq2_0Layout {
  static constexpr int kBytes = 66;
  static QUENCH_TEAM_INLINE void pack(const BlockNumbers<32, 8>& in, std::uint8_t* block) {
    put_quarters<0>(in.codes, block);
    store_half(block + 64, in.unit);
  }
};

}  // namespace quench
