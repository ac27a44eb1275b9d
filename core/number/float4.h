#pragma once
// E2M1: +-{0, 0.5, 1, 1.5, 2, 3, 4, 6} in code order, sign in bit 3.

#include <cstdint>

#include "core/number/float6.h"

namespace quench {

struct E2m1 {
  static constexpr int kBits = 4;
  static constexpr float kMax = 6.0f;
  static constexpr int kMaxExponent = 2;  // floor(log2(kMax))
  static constexpr int kMantissaBits = 1;
  static constexpr std::uint8_t kNanCode = 0x3;

  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::uint8_t encode(float value) noexcept {
    return encode_finite_only<2, 1>(value);
  }
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr float decode(std::uint8_t code) noexcept {
    return decode_finite_only<2, 1>(code);
  }
};

// Even element in the low nibble.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint8_t pack_nibbles(std::uint8_t even, std::uint8_t odd) noexcept {
  return static_cast<std::uint8_t>((even & 0xF) | (odd << 4));
}

}  // namespace quench
