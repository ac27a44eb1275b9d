#pragma once
// E8M0, the block scale of OCP MX: 2^(byte - 127), 255 is NaN, no zero.

#include <cstdint>
#include <string_view>

#include "core/number/minifloat.h"

namespace quench {

inline constexpr std::uint8_t kE8m0Nan = 255;

// Byte 0 is subnormal.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float decode_e8m0(std::uint8_t byte) noexcept {
  const std::uint32_t word = byte == 0 ? 0x00400000u : static_cast<std::uint32_t>(byte) << 23;
  return bit_cast<float>(byte == kE8m0Nan ? kF32QuietNan : word);
}

// Exact for every byte; NaN for 255.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float e8m0_reciprocal(std::uint8_t byte) noexcept {
  return decode_e8m0(byte == kE8m0Nan ? kE8m0Nan : static_cast<std::uint8_t>(254 - byte));
}

// Smallest power of two >= value, at least 2^-127; Inf and NaN give NaN (PTX cvt.rp.ue8m0x2.f32).
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint8_t encode_e8m0_up(float value) noexcept {
  const auto word = bit_cast<std::uint32_t>(value);
  const std::uint32_t exponent = word >> 23;
  const std::uint32_t mantissa = word & 0x007FFFFFu;
  const std::uint32_t up = exponent == 0 ? mantissa > 0x00400000u : mantissa != 0;
  return static_cast<std::uint8_t>(exponent >= 255 ? kE8m0Nan : exponent + up);
}

// MX scale of a block's amax; max: the format's maximum.
enum class MxScaleMode : std::uint8_t {
  floor,  // exponent of amax - exponent of max (OCP MX 1.0, 6.3): may clip
  rceil,  // smallest power of two with max * scale >= amax (NVIDIA)
  ceil,   // floor, plus one unless amax is a power of two
  even,   // floor of amax rounded to the element's mantissa
};
inline constexpr int kMxScaleModeCount = 4;

[[nodiscard]] constexpr std::string_view to_string(MxScaleMode mode) noexcept {
  constexpr std::string_view kNames[kMxScaleModeCount] = {"floor", "rceil", "ceil", "even"};
  return kNames[static_cast<int>(mode)];
}

// Block scale, amax >= 0. Zero block: 0. Inf, NaN, and amax that `even` rounds to infinity: NaN.
template <class Element>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint8_t mx_scale(float amax, MxScaleMode mode) noexcept {
  if (mode == MxScaleMode::rceil) {
    constexpr float kInverseMax = 1.0f / Element::kMax;
    return encode_e8m0_up(amax * kInverseMax);
  }
  auto word = bit_cast<std::uint32_t>(amax);
  if (word >= kF32Infinity) return kE8m0Nan;
  if (mode == MxScaleMode::even) word += 1u << (22 - Element::kMantissaBits);
  if (word >= kF32Infinity) return kE8m0Nan;
  const bool up = mode == MxScaleMode::ceil && (word & 0x007FFFFFu) != 0;
  const int exponent = static_cast<int>(word >> 23) - Element::kMaxExponent + (up ? 1 : 0);
  return static_cast<std::uint8_t>(exponent < 0 ? 0 : exponent);
}

}  // namespace quench
