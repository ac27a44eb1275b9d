#pragma once
// Storage types of the 16-bit and 8-bit floats. Conversions from f32 round to nearest even; float8 saturates
// finite overflow as training needs (numerics 0.3). The fp8/fp6/fp4/e8m0 encoders live in core/float8.h.

#include <bit>
#include <cstdint>

namespace quench {

struct bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  // Round to nearest even; NaN stays NaN (quiet), overflow rounds to infinity as IEEE asks.
  explicit constexpr bfloat16(float value) noexcept : bits(round(value)) {}
  constexpr operator float() const noexcept {  // NOLINT(google-explicit-constructor): widening is exact
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  static constexpr bfloat16 from_bits(std::uint16_t raw) noexcept {
    bfloat16 result;
    result.bits = raw;
    return result;
  }

 private:
  static constexpr std::uint16_t round(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((word >> 16) | 0x0040u);
    return static_cast<std::uint16_t>((word + 0x7FFFu + ((word >> 16) & 1u)) >> 16);
  }
};

struct float16 {
  std::uint16_t bits;

  float16() = default;
  explicit float16(float value) noexcept : bits(round(value)) {}
  operator float() const noexcept { return widen(bits); }  // NOLINT(google-explicit-constructor)
  static constexpr float16 from_bits(std::uint16_t raw) noexcept {
    float16 result;
    result.bits = raw;
    return result;
  }

 private:
  static std::uint16_t round(float value) noexcept;
  static float widen(std::uint16_t bits) noexcept;
};

struct float8_e4m3 { std::uint8_t bits; };
struct float8_e5m2 { std::uint8_t bits; };
struct float8_e8m0 { std::uint8_t bits; };

static_assert(sizeof(bfloat16) == 2 && sizeof(float16) == 2 && sizeof(float8_e4m3) == 1);

}  // namespace quench
