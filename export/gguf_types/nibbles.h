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

}  // namespace quench
