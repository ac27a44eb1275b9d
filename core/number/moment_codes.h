#pragma once
// Codes in which low-bit optimizers keep their moments: entries of a table times the scale of a block of elements.
//
// The tables are the dynamic maps of Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (2022,
// arXiv:2110.02861), in the form that TorchAO's optimizers use.

#include <cstdint>

#include "core/number/minifloat.h"

namespace quench {

enum class MomentFormat : std::uint8_t {
  int8,  // 256 entries, a byte an element
  int4,  // 16 entries, two elements a byte, even index in the high nibble
  fp8,   // float8 e4m3 itself, no table
};

// Neighbouring elements that share a scale.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::int64_t moment_block(MomentFormat format) noexcept {
  return format == MomentFormat::int4 ? 128 : 256;
}

// A number y in [-1, 1] gets the largest code whose threshold is not above y: that of the nearest value, the upper one
// in the middle between two.
struct MomentTable {
  int size = 0;
  float values[256] = {};      // ascending
  float thresholds[256] = {};  // thresholds[0] is -infinity
};

// A shorter way to the code of a number: numbers of one sign, exponent and first five bits of mantissa share a key, and
// few thresholds lie between those of a key. Exponents below 2^-24 share the first key.
struct MomentKey {
  static constexpr int kMantissaBits = 5, kLeastExponent = 127 - 24;
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr std::uint32_t kBase = static_cast<std::uint32_t>(kLeastExponent) << kMantissaBits;
  static constexpr int kCount = (24 << kMantissaBits) + 1;  // of magnitudes up to 1

  // Of a magnitude in [0, 1].
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr int of(float magnitude) noexcept {
    const std::uint32_t key = bit_cast<std::uint32_t>(magnitude) >> kShift;
    return key < kBase ? 0 : static_cast<int>(key - kBase);
  }
  // Bounds of the magnitudes of a key: from least() to before that of the next.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr float least(int key) noexcept {
    return key == 0 ? 0.0f : bit_cast<float>((kBase + static_cast<std::uint32_t>(key)) << kShift);
  }
};

// The largest of `size` (a power of two) codes whose threshold is not above y; 0 for NaN.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr int search_moment(const float* thresholds, int size, float y) noexcept {
  int code = 0;
  for (int half = size / 2; half > 0; half /= 2)
    if (y >= thresholds[code + half]) code += half;
  return code;
}
// A code that no number of a key exceeds downwards: where the search for them begins. Keys of negative numbers follow
// those of positive ones.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr int first_of_key(const float* thresholds, int size, int key) noexcept {
  const bool negative = key >= MomentKey::kCount;
  const int magnitude = negative ? key - MomentKey::kCount : key;
  if (!negative) return search_moment(thresholds, size, MomentKey::least(magnitude));
  const bool last = magnitude + 1 == MomentKey::kCount;
  return search_moment(thresholds, size, last ? -1.0f : -MomentKey::least(magnitude + 1));
}
// The code of y in [-1, 1] from the first codes of all keys.
[[nodiscard]] QUENCH_HOST_DEVICE inline int code_by_key(const float* thresholds, int size, const std::uint8_t* first,
                                                        float y) noexcept {
  if (y != y) return 0;
  const bool negative = y < 0.0f;
  int code = first[MomentKey::of(negative ? -y : y == 0.0f ? 0.0f : y) + (negative ? MomentKey::kCount : 0)];
  while (code + 1 < size && y >= thresholds[code + 1]) ++code;
  return code;
}

// For int8 and int4: signed for the first moment, unsigned for the second, which is never negative. The unsigned table
// of int4 has no zero, so that no denominator vanishes.
[[nodiscard]] const MomentTable& moment_table(MomentFormat format, bool is_signed);

// The scale of a block is its largest magnitude, at least this, times moment_scale_factor.
inline constexpr float kLeastMomentMagnitude = 1e-12f;
// fp8: the largest magnitude becomes e4m3's 448.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float moment_scale_factor(MomentFormat format) noexcept {
  return format == MomentFormat::fp8 ? 1.0f / 448.0f : 1.0f;
}

}  // namespace quench
