#pragma once
// Bit layouts that GGUF block types share.

#include <cstdint>
#include <cstring>

#include "core/gguf_types/group_team.h"
#include "core/number/float4.h"
#include "core/number/float_types.h"

namespace quench {

inline constexpr int kSmallBlock = 32, kSuperBlock = 256;

QUENCH_TEAM_INLINE void store_half(std::uint8_t* to, float value) {
  const std::uint16_t bits = float16(value).bits;
  to[0] = static_cast<std::uint8_t>(bits);
  to[1] = static_cast<std::uint8_t>(bits >> 8);
}
[[nodiscard]] inline float load_half(const std::uint8_t* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return static_cast<float>(float16::from_bits(bits));
}

// `count` codes, of which byte j holds j (low) and j + count / 2 (high).
QUENCH_TEAM_INLINE void put_halves(const std::uint8_t* codes, int count, std::uint8_t* out) {
  for (int j = 0; j < count / 2; ++j) out[j] = pack_nibbles(codes[j], codes[j + count / 2]);
}
inline void get_halves(const std::uint8_t* in, int count, std::int8_t* codes) {
  for (int j = 0; j < count / 2; ++j) {
    codes[j] = static_cast<std::int8_t>(in[j] & 0xF);
    codes[j + count / 2] = static_cast<std::int8_t>(in[j] >> 4);
  }
}

// Two-bit codes of a super block in 64 bytes: byte i of each half holds elements i, i + 32, i + 64 and i + 96 of it.
// Takes bits First and First + 1 of each code.
template <int First>
QUENCH_TEAM_INLINE void put_quarters(const std::uint8_t* codes, std::uint8_t* out) {
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < 32; ++i) {
      int bits = 0;
      for (int quarter = 0; quarter < 4; ++quarter)
        bits |= (codes[half * 128 + quarter * 32 + i] >> First & 3) << (2 * quarter);
      out[half * 32 + i] = static_cast<std::uint8_t>(bits);
    }
}
inline void get_quarters(const std::uint8_t* in, std::int8_t* codes) {
  for (int half = 0; half < 2; ++half)
    for (int quarter = 0; quarter < 4; ++quarter)
      for (int i = 0; i < 32; ++i)
        codes[half * 128 + quarter * 32 + i] = static_cast<std::int8_t>(in[half * 32 + i] >> (2 * quarter) & 3);
}

// Bit k of byte i in 32 bytes: element k * 32 + i.
template <int Bit>  // number of the bit in a code
QUENCH_TEAM_INLINE void put_planes(const std::uint8_t* codes, std::uint8_t* out) {
  for (int i = 0; i < 32; ++i) {
    int bits = 0;
    for (int k = 0; k < 8; ++k) bits |= (codes[k * 32 + i] >> Bit & 1) << k;
    out[i] = static_cast<std::uint8_t>(bits);
  }
}
[[nodiscard]] inline int plane_bit(const std::uint8_t* in, int element) {
  return in[element % 32] >> (element / 32) & 1;
}

}  // namespace quench
