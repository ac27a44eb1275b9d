#pragma once
// Rounding and widening of floats with E exponent bits (bias 2^(E-1) - 1), M mantissa bits and subnormals, branch-free.
// Callers handle values beyond the largest finite one.

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
  // Smallest normal, 2^(1 - bias), as f32 bits.
  static constexpr std::uint32_t kMinNormalWord = static_cast<std::uint32_t>(128 - kBias) << 23;

  // Nearest code of f32 magnitude bits, ties to even, without an upper bound: overflow, Inf and NaN give larger codes.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::uint32_t round(std::uint32_t magnitude) noexcept {
    constexpr int kShift = 23 - M;
    constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
    const std::uint32_t lsb = (magnitude >> kShift) & 1u;
    const std::uint32_t normal = (magnitude - kRebias + ((1u << (kShift - 1)) - 1u) + lsb) >> kShift;
    // Its ulp is the smallest subnormal, so f32 addition rounds to the grid. The integer origin prevents FMA
    // contraction.
    constexpr std::uint32_t kMagicWord = static_cast<std::uint32_t>(151 - kBias - M) << 23;
    const float shifted = bit_cast<float>(magnitude) + bit_cast<float>(kMagicWord);
    const std::uint32_t subnormal = bit_cast<std::uint32_t>(shifted) - kMagicWord;
    return magnitude < kMinNormalWord ? subnormal : normal;
  }

  // Exact inverse of round.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr float widen(std::uint32_t code) noexcept {
    const std::uint32_t normal = (code << (23 - M)) + (static_cast<std::uint32_t>(127 - kBias) << 23);
    constexpr float kMinSubnormal = bit_cast<float>(static_cast<std::uint32_t>(128 - kBias - M) << 23);
    const float subnormal = static_cast<float>(static_cast<std::int32_t>(code)) * kMinSubnormal;
    return code < (1u << M) ? subnormal : bit_cast<float>(normal);
  }

  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::uint32_t sign_of(std::uint32_t word) noexcept {
    return (word >> 31) << kSignShift;
  }
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr float with_sign(float magnitude, std::uint32_t code) noexcept {
    return bit_cast<float>(bit_cast<std::uint32_t>(magnitude) | ((code >> kSignShift) & 1u) << 31);
  }
  static constexpr std::uint32_t kMagnitudeMask = (1u << kSignShift) - 1u;
};

}  // namespace quench
