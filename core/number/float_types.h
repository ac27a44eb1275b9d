#pragma once
// Storage types of 16- and 8-bit floats. f32 conversions round to nearest even; overflow gives infinity.

#include <cstdint>

#include "core/number/host_device.h"
#include "core/number/minifloat.h"

namespace quench {

struct bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  // NaN becomes quiet.
  QUENCH_HOST_DEVICE explicit constexpr bfloat16(float value) noexcept : bits(round(value)) {}
  QUENCH_HOST_DEVICE constexpr operator float() const noexcept {  // NOLINT(google-explicit-constructor): exact
    return bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  static QUENCH_HOST_DEVICE constexpr bfloat16 from_bits(std::uint16_t raw) noexcept {
    bfloat16 result;
    result.bits = raw;
    return result;
  }

 private:
  static QUENCH_HOST_DEVICE constexpr std::uint16_t round(float value) noexcept {
    const auto word = bit_cast<std::uint32_t>(value);
    const std::uint32_t nearest = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
    const std::uint32_t quiet = (word >> 16) | 0x0040u;
    return static_cast<std::uint16_t>((word & kF32MagnitudeMask) > kF32Infinity ? quiet : nearest);
  }
};

// IEEE 754 binary16.
struct float16 {
  std::uint16_t bits;

  float16() = default;
  // NaN becomes quiet.
  QUENCH_HOST_DEVICE explicit constexpr float16(float value) noexcept : bits(round(value)) {}
  QUENCH_HOST_DEVICE constexpr operator float() const noexcept {  // NOLINT(google-explicit-constructor): exact
    return widen(bits);
  }
  static QUENCH_HOST_DEVICE constexpr float16 from_bits(std::uint16_t raw) noexcept {
    float16 result;
    result.bits = raw;
    return result;
  }

 private:
  using Grid = Minifloat<5, 10>;
  static constexpr std::uint32_t kInfinity = 0x7C00u;

  static QUENCH_HOST_DEVICE constexpr std::uint16_t round(float value) noexcept {
    const auto word = bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = word & kF32MagnitudeMask;
    const std::uint32_t nearest = Grid::round(magnitude);
    const std::uint32_t finite_or_infinite = nearest > kInfinity ? kInfinity : nearest;
    const std::uint32_t quiet = kInfinity | 0x0200u | ((word >> 13) & 0x03FFu);
    return static_cast<std::uint16_t>(Grid::sign_of(word) | (magnitude > kF32Infinity ? quiet : finite_or_infinite));
  }
  static QUENCH_HOST_DEVICE constexpr float widen(std::uint32_t code) noexcept {
    const std::uint32_t magnitude = code & Grid::kMagnitudeMask;
    const float special = bit_cast<float>(kF32Infinity | (magnitude & 0x03FFu) << 13);
    return Grid::with_sign(magnitude >= kInfinity ? special : Grid::widen(magnitude), code);
  }
};

struct float8_e4m3 {
  std::uint8_t bits;
};
struct float8_e5m2 {
  std::uint8_t bits;
};
struct float8_e8m0 {
  std::uint8_t bits;
};

static_assert(sizeof(bfloat16) == 2 && sizeof(float16) == 2 && sizeof(float8_e4m3) == 1);

}  // namespace quench
