#pragma once
// Quantized optimizer moments: table entry times block scale. Dynamic maps of Dettmers et al., 2022, arXiv:2110.02861.

#include <cstdint>

#include "core/number/minifloat.h"

namespace quench {

enum class MomentFormat : std::uint8_t {
  int8,  // 256 entries
  int4,  // 16 entries, even index in the high nibble
  fp8,   // e4m3, no table
};

// Elements per scale.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::int64_t moment_block(MomentFormat format) noexcept {
  return format == MomentFormat::int4 ? 128 : 256;
}

// y in [-1, 1] gets the nearest value, ties up.
struct MomentTable {
  int size = 0;
  float values[256] = {};      // ascending
  float thresholds[256] = {};  // thresholds[0] is -infinity
};

// Largest code with threshold <= y; size is a power of two; 0 for NaN.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr int search_moment(const float* thresholds, int size, float y) noexcept {
  int code = 0;
  for (int half = size / 2; half > 0; half /= 2)
    if (y >= thresholds[code + half]) code += half;
  return code;
}

// Code by table lookup and addition. Key: sign, exponent and seven mantissa bits, with at most one threshold each.
// Magnitudes below 2^-24 count as 2^-24.
struct MomentKeys {
  static constexpr int kShift = 16;
  static constexpr std::uint32_t kLeast = (127u - 24u) << 23;  // word of 2^-24
  static constexpr int kCount = (24 << 7) + 1;                 // [-kCount, kCount)

  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::int32_t place(float magnitude, bool negative) noexcept {
    const std::int32_t above =
        static_cast<std::int32_t>(bit_cast<std::uint32_t>(magnitude)) - static_cast<std::int32_t>(kLeast);
    const std::int32_t place = above > 0 ? above : 0;
    return negative ? ~place : place;
  }
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr int key(std::int32_t place) noexcept { return place >> kShift; }
  // Magnitudes past the key's threshold carry or borrow.
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
    // Low bits from which the next code outwards applies, else 2^kShift. A negative threshold itself has the nearer
    // code.
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

// int8 and int4; signed: first moment. Unsigned int4 has no zero: denominators do not vanish.
[[nodiscard]] const MomentTable& moment_table(MomentFormat format, bool is_signed);

// Block scale = max(amax, this) * moment_scale_factor.
inline constexpr float kLeastMomentMagnitude = 1e-12f;
// fp8: amax becomes 448.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float moment_scale_factor(MomentFormat format) noexcept {
  return format == MomentFormat::fp8 ? 1.0f / 448.0f : 1.0f;
}

}  // namespace quench
