#pragma once
// 6-bit OCP MX 1.0 formats: no infinities, no NaN; low bits of a byte.

#include <cstdint>

#include "core/number/minifloat.h"

namespace quench {

// Round to nearest even, saturating, infinities included; -0 keeps its sign. NaN becomes +-1.5 (its MX block has a NaN
// scale).
template <int E, int M>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint8_t encode_finite_only(float value) noexcept {
  using Grid = Minifloat<E, M>;
  constexpr std::uint32_t kOneAndAHalf = (static_cast<std::uint32_t>(Grid::kBias) << M) | (1u << (M - 1));
  const auto word = bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = word & kF32MagnitudeMask;
  const std::uint32_t nearest = Grid::round(magnitude);
  const std::uint32_t code = nearest > Grid::kMagnitudeMask ? Grid::kMagnitudeMask : nearest;
  return static_cast<std::uint8_t>(Grid::sign_of(word) | (magnitude > kF32Infinity ? kOneAndAHalf : code));
}

template <int E, int M>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float decode_finite_only(std::uint8_t code) noexcept {
  using Grid = Minifloat<E, M>;
  return Grid::with_sign(Grid::widen(code & Grid::kMagnitudeMask), code);
}

// Bias 1, steps of 0.125 below 2.
struct E2m3 {
  static constexpr int kBits = 6;
  static constexpr float kMax = 7.5f;
  static constexpr int kMaxExponent = 2;  // floor(log2(kMax))
  static constexpr int kMantissaBits = 3;
  static constexpr std::uint8_t kNanCode = 0x0C;

  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::uint8_t encode(float value) noexcept {
    return encode_finite_only<2, 3>(value);
  }
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr float decode(std::uint8_t code) noexcept {
    return decode_finite_only<2, 3>(code);
  }
};

// Bias 3, smallest subnormal 0.0625.
struct E3m2 {
  static constexpr int kBits = 6;
  static constexpr float kMax = 28.0f;
  static constexpr int kMaxExponent = 4;
  static constexpr int kMantissaBits = 2;
  static constexpr std::uint8_t kNanCode = 0x0E;

  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::uint8_t encode(float value) noexcept {
    return encode_finite_only<3, 2>(value);
  }
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr float decode(std::uint8_t code) noexcept {
    return decode_finite_only<3, 2>(code);
  }
};

}  // namespace quench
