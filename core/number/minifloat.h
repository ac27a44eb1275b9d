#pragma once
// Rounding and widening shared by every small float with a sign bit, E exponent bits of bias 2^(E-1) - 1, M mantissa
// bits and subnormals: IEEE half, the OCP 8-bit formats (OFP8) and the OCP MX 6- and 4-bit element formats.
//
// The formats differ only in what lies above their largest finite value; that is the caller's part.

#include <cstdint>

#include "core/number/host_device.h"

namespace quench {

inline constexpr std::uint32_t kF32MagnitudeMask = 0x7FFFFFFFu;
inline constexpr std::uint32_t kF32Infinity = 0x7F800000u;
inline constexpr std::uint32_t kF32QuietNan = 0x7FC00000u;

template <int E, int M>
struct Minifloat {
  static constexpr int kBias = (1 << (E - 1)) - 1;
  static constexpr int kSignShift = E + M;
  // f32 word of the smallest normal value, 2^(1 - bias).
  static constexpr std::uint32_t kMinNormalWord = static_cast<std::uint32_t>(128 - kBias) << 23;

  // Rounds an f32 magnitude (sign bit clear) to the nearest code, ties to the even code, on the format's grid continued
  // upwards without end: values above the largest finite one, Inf and NaN give larger codes. Branch-free.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::uint32_t round(std::uint32_t magnitude) noexcept {
    constexpr int kShift = 23 - M;
    constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
    const std::uint32_t lsb = (magnitude >> kShift) & 1u;
    const std::uint32_t normal = (magnitude - kRebias + ((1u << (kShift - 1)) - 1u) + lsb) >> kShift;
    // The ulp of this constant is the format's smallest subnormal, so that the f32 addition rounds to its grid. The
    // magnitude comes from an integer: no compiler can fuse the addition with a product that made the value.
    constexpr std::uint32_t kMagicWord = static_cast<std::uint32_t>(151 - kBias - M) << 23;
    const float shifted = bit_cast<float>(magnitude) + bit_cast<float>(kMagicWord);
    const std::uint32_t subnormal = bit_cast<std::uint32_t>(shifted) - kMagicWord;
    return magnitude < kMinNormalWord ? subnormal : normal;
  }

  // The value of a magnitude code on the same endless grid: exact. Branch-free.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr float widen(std::uint32_t code) noexcept {
    const std::uint32_t normal = (code << (23 - M)) + (static_cast<std::uint32_t>(127 - kBias) << 23);
    constexpr float kMinSubnormal = bit_cast<float>(static_cast<std::uint32_t>(128 - kBias - M) << 23);
    const float subnormal = static_cast<float>(static_cast<std::int32_t>(code)) * kMinSubnormal;
    return code < (1u << M) ? subnormal : bit_cast<float>(normal);
  }

  // The format's sign bit of an f32 word, in place above the magnitude code.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::uint32_t sign_of(std::uint32_t word) noexcept {
    return (word >> 31) << kSignShift;
  }
  // `magnitude` with the sign of a code of this format.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr float with_sign(float magnitude, std::uint32_t code) noexcept {
    return bit_cast<float>(bit_cast<std::uint32_t>(magnitude) | ((code >> kSignShift) & 1u) << 31);
  }
  static constexpr std::uint32_t kMagnitudeMask = (1u << kSignShift) - 1u;
};

}  // namespace quench
