#pragma once
// OCP float8 (OFP8 1.0) and its scales, branch-free for vectorization.

#include <cstdint>

#include "core/number/minifloat.h"

namespace quench {

// Round to nearest even; `overflow`: code beyond the largest finite value.
template <class Format>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint8_t round_to_float8(float value, std::uint32_t overflow) noexcept {
  const auto word = bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = word & kF32MagnitudeMask;
  const std::uint32_t nearest = Format::Grid::round(magnitude);
  const std::uint32_t code = nearest > Format::kMaxCode ? overflow : nearest;
  return static_cast<std::uint8_t>(Format::Grid::sign_of(word) | (magnitude > kF32Infinity ? Format::kNanCode : code));
}

// Bias 7, subnormals to 2^-9, no infinities.
struct E4m3 {
  using Grid = Minifloat<4, 3>;
  static constexpr int kBits = 8;
  static constexpr float kMax = 448.0f;
  static constexpr int kMaxExponent = 8;  // floor(log2(kMax))
  static constexpr int kMantissaBits = 3;
  static constexpr std::uint8_t kMaxCode = 0x7E;
  static constexpr std::uint8_t kNanCode = 0x7F;

  // Saturating, infinities included; NaN keeps its sign.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::uint8_t encode(float value) noexcept {
    return round_to_float8<E4m3>(value, kMaxCode);
  }
  // Overflow and infinities become NaN.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::uint8_t encode_ieee(float value) noexcept {
    return round_to_float8<E4m3>(value, kNanCode);
  }
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr float decode(std::uint8_t code) noexcept {
    const std::uint32_t magnitude = code & Grid::kMagnitudeMask;
    return Grid::with_sign(magnitude == kNanCode ? bit_cast<float>(kF32QuietNan) : Grid::widen(magnitude), code);
  }
};

// Bias 15, subnormals to 2^-16, infinities 0x7C and 0xFC, NaN above.
struct E5m2 {
  using Grid = Minifloat<5, 2>;
  static constexpr int kBits = 8;
  static constexpr float kMax = 57344.0f;
  static constexpr int kMaxExponent = 15;
  static constexpr int kMantissaBits = 2;
  static constexpr std::uint8_t kMaxCode = 0x7B;
  static constexpr std::uint8_t kInfinityCode = 0x7C;
  static constexpr std::uint8_t kNanCode = 0x7F;

  // Saturating, infinities included; NaN keeps its sign.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::uint8_t encode(float value) noexcept {
    return round_to_float8<E5m2>(value, kMaxCode);
  }
  // Overflow becomes infinity.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::uint8_t encode_ieee(float value) noexcept {
    return round_to_float8<E5m2>(value, kInfinityCode);
  }
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr float decode(std::uint8_t code) noexcept {
    const std::uint32_t magnitude = code & Grid::kMagnitudeMask;
    const float special = bit_cast<float>(magnitude > kInfinityCode ? kF32QuietNan : kF32Infinity);
    return Grid::with_sign(magnitude >= kInfinityCode ? special : Grid::widen(magnitude), code);
  }
};

// Dynamic encode scale: max / max(amax, 1e-12), one IEEE f32 division (TorchAO's f64 quotient rounds to the same bits).
// NaN: NaN; Inf: 0. power_of_two clears the mantissa.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float float8_scale(float amax, float max, bool power_of_two) noexcept {
  const float scale = max / (amax < 1e-12f ? 1e-12f : amax);
  const auto word = bit_cast<std::uint32_t>(scale);
  return power_of_two && word < kF32Infinity ? bit_cast<float>(word & kF32Infinity) : scale;
}

}  // namespace quench
