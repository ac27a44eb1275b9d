#pragma once
// Bit layouts that GGUF block types share.

#include <cstdint>
#include <cstring>

#include "core/number/float4.h"
#include "core/number/float_types.h"

namespace quench {

inline constexpr int kSmallBlock = 32, kSuperBlock = 256;

inline void store_half(std::uint8_t* to, float value) {
  const std::uint16_t bits = float16(value).bits;
  std::memcpy(to, &bits, sizeof bits);
}
[[nodiscard]] inline float load_half(const std::uint8_t* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return static_cast<float>(float16::from_bits(bits));
}

// `count` codes, of which byte j holds j (low) and j + count / 2 (high).
template <class Code>
void put_halves(const Code* codes, int count, std::uint8_t* out) {
  for (int j = 0; j < count / 2; ++j)
    out[j] = pack_nibbles(static_cast<std::uint8_t>(codes[j]), static_cast<std::uint8_t>(codes[j + count / 2]));
}
inline void get_halves(const std::uint8_t* in, int count, std::int8_t* codes) {
  for (int j = 0; j < count / 2; ++j) {
    codes[j] = static_cast<std::int8_t>(in[j] & 0xF);
    codes[j + count / 2] = static_cast<std::int8_t>(in[j] >> 4);
  }
}

// Two-bit codes of a super block in 64 bytes: byte i of each half holds elements i, i + 32, i + 64 and i + 96 of it.
void put_quarters(const std::uint8_t* codes, std::uint8_t* out);
void get_quarters(const std::uint8_t* in, std::int8_t* codes);

// Bit k of byte i in 32 bytes: element k * 32 + i.
void put_planes(const std::uint8_t* bits, std::uint8_t* out);
[[nodiscard]] inline int plane_bit(const std::uint8_t* in, int element) {
  return in[element % 32] >> (element / 32) & 1;
}

}  // namespace quench
