#pragma once
// ggml Q4_K and Q6_K: 256 elements, two-level scales.

#include <cstdint>
#include <cstring>

#include "core/number/float_types.h"

namespace quench {

inline constexpr int kSuperBlock = 256;
inline constexpr int kQ4kBytes =
    144;  // f16 scale, f16 scale of minima, 12 bytes of 6-bit scales and minima, 128 of values
inline constexpr int kQ6kBytes = 210;  // 128 bytes of low bits, 64 of high bits, 16 scales, f16 scale

inline void store_half(std::uint8_t* to, float value) {
  const std::uint16_t bits = float16(value).bits;
  std::memcpy(to, &bits, sizeof bits);
}
[[nodiscard]] inline float load_half(const std::uint8_t* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return static_cast<float>(float16::from_bits(bits));
}

// x ~ code * scale - minimum by groups of 32, codes 0 to 15, 6-bit scales and minima: least weighted squared error over
// initial scales, each refined by least squares.
void quantize_q4_k(const float* x, std::uint8_t* block);
// Codes; scale and offset (negative minimum) of eight groups.
void unpack_q4_k(const std::uint8_t* block, std::uint8_t* codes, float* scales, float* offsets);

// x ~ code * scale by groups of 16, codes -32 to 31, 8-bit scales; same search.
void quantize_q6_k(const float* x, std::uint8_t* block);
void unpack_q6_k(const std::uint8_t* block, std::int8_t* codes, float* scales);

}  // namespace quench
