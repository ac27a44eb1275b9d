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

// The largest of `size` (a power of two) codes whose threshold is not above y; 0 for NaN.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr int search_moment(const float* thresholds, int size, float y) noexcept {
  int code = 0;
  for (int half = size / 2; half > 0; half /= 2)
    if (y >= thresholds[code + half]) code += half;
  return code;
}

// A shorter way to the code of a y in [-1, 1]: one entry of a table and an addition. Numbers of one sign, exponent and
// first seven bits of the mantissa share a key, so many that at most one threshold lies between them. Magnitudes below
// 2^-24, which no threshold divides, count as 2^-24.
struct MomentKeys {
  static constexpr int kShift = 16;                            // bits of a word that do not tell its key
  static constexpr std::uint32_t kLeast = (127u - 24u) << 23;  // the word of 2^-24
  static constexpr int kCount = (24 << 7) + 1;                 // of magnitudes up to 1: keys are in [-kCount, kCount)

  // What stands for a number in the sum: its magnitude's word from kLeast on, or the complement of that.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::int32_t place(float magnitude, bool negative) noexcept {
    const std::int32_t above =
        static_cast<std::int32_t>(bit_cast<std::uint32_t>(magnitude)) - static_cast<std::int32_t>(kLeast);
    const std::int32_t place = above > 0 ? above : 0;
    return negative ? ~place : place;
  }
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr int key(std::int32_t place) noexcept { return place >> kShift; }
  // entry(key) + place has the code in its bits from kShift on: numbers beyond the threshold of their key, seen from 0,
  // carry or borrow one.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::uint32_t code(std::uint32_t entry,
                                                                       std::int32_t place) noexcept {
    return (entry + static_cast<std::uint32_t>(place)) >> kShift;
  }
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr float least_magnitude(int key) noexcept {
    const auto outwards = static_cast<std::uint32_t>(key < 0 ? ~key : key);
    return outwards == 0 ? 0.0f : bit_cast<float>(kLeast + (outwards << kShift));
  }
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::uint32_t entry(const float* thresholds, int size,
                                                                        int key) noexcept {
    const bool negative = key < 0;
    const auto outwards = static_cast<std::uint32_t>(negative ? ~key : key) << kShift;
    const float least = least_magnitude(key);
    const int nearer = search_moment(thresholds, size, negative ? -least : least);
    // The low bits from which on a magnitude has the next code outwards, or more than there are. A negative threshold
    // itself has the nearer code.
    std::uint32_t limit = 1u << kShift;
    if (const int border = negative ? nearer : nearer + 1; border > 0 && border < size) {
      const float threshold = thresholds[border];
      const std::uint32_t first =
          negative ? bit_cast<std::uint32_t>(-threshold) + 1u : bit_cast<std::uint32_t>(threshold);
      if (first - kLeast - outwards < limit) limit = first - kLeast - outwards;
    }
    const std::uint32_t code = static_cast<std::uint32_t>(nearer) << kShift;
    return negative ? code + limit + outwards : code + (1u << kShift) - limit - outwards;
  }
};

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
