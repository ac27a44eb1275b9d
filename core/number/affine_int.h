#pragma once
// Affine integer quantization, 1 to 8 bits: value ~ (code - zero_point) * scale. TorchAO's formulas for dynamic scales.
// Grids of two, three and four levels: those of ParetoQ (Liu et al., 2025, arXiv:2502.02631), as codes -1 to 1 or odd
// codes -3 to 3 of integers without zero points.

#include <cstdint>

#include "core/number/dtype.h"
#include "core/number/float_types.h"

namespace quench {

// lowest, highest: code range; "with 0": range includes 0.
enum class IntMapping : std::uint8_t {
  symmetric,              // scale = amax / ((highest - lowest) / 2); may clip the largest positive value
  symmetric_no_clipping,  // scale = max(min / lowest, max / highest)
  asymmetric,             // scale = (max - min) / (highest - lowest) with 0; integer zero point
  float_zero_point,       // as asymmetric without 0, >= 1e-6; zero point is the value of code 0
                          // (tinygemm): value ~ code * scale + zero_point
  // Float zero point truncated to 0: TorchAO 0.19's IntxFakeQuantizeConfig with an asymmetric mapping.
  truncated_zero_point,
  // Few levels, without zero points; values beyond a are clipped.
  binary,     // -1, 1: the sign, 1 for 0; scale = a = mean magnitude
  ternary,    // -1, 0, 1: nearest; scale = 2/3 a, a = amax
  stretched,  // -3, -1, 1, 3: 2 * floor(x / (2 * scale)) + 1; scale = a / 4, a = amax (SEQ)
};
[[nodiscard]] QUENCH_HOST_DEVICE constexpr bool has_few_levels(IntMapping mapping) noexcept {
  return mapping == IntMapping::binary || mapping == IntMapping::ternary || mapping == IntMapping::stretched;
}

struct IntRange {
  int lowest, highest;
};
[[nodiscard]] QUENCH_HOST_DEVICE constexpr IntRange int_range(int bits) noexcept {
  return {-(1 << (bits - 1)), (1 << (bits - 1)) - 1};
}
// Smallest and largest code of a mapping.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr IntRange int_range(int bits, IntMapping mapping) noexcept {
  if (mapping == IntMapping::stretched) return {-3, 3};
  return has_few_levels(mapping) ? IntRange{-1, 1} : int_range(bits);
}
// Bits of the stored integers that hold the codes of a mapping of few levels.
[[nodiscard]] constexpr int stored_bits(IntMapping mapping) noexcept {
  return mapping == IntMapping::stretched ? 3 : 2;
}

inline constexpr float kLargestF32 = 0x1.FFFFFEp127f;

struct IntParameters {
  float scale;
  float zero_point;  // integer except float_zero_point
};

// Scale rounded to `dtype`; at least the smallest normal, in f16 (GGUF's blocks) the smallest subnormal: f16 has no
// normals below 6.1e-5, which scales of small weights need.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float stored_scale(float scale, DType dtype) noexcept {
  constexpr float kSmallestNormal = 0x1p-126f, kSmallestF16 = 0x1p-24f;
  if (dtype == DType::f16) return scale < kSmallestF16 ? kSmallestF16 : float(float16(scale));
  if (scale < kSmallestNormal) return kSmallestNormal;
  return dtype == DType::bf16 ? float(bfloat16(scale)) : scale;
}

// Sums of magnitudes in fixed point: equal in any order, exact to 2^-38 of `amax`, for up to 2^24 elements.
struct FixedMagnitudes {
  float unit;  // power of two

  QUENCH_HOST_DEVICE constexpr explicit FixedMagnitudes(float amax) noexcept : unit(0) {
    constexpr int kBits = 38, kLeast = -60, kBias = 127;
    const int exponent = static_cast<int>(bit_cast<std::uint32_t>(amax) >> 23 & 0xFF) - kBias;
    const int used = exponent < kLeast ? kLeast : exponent;
    unit = bit_cast<float>(static_cast<std::uint32_t>(kBits - used + kBias) << 23);
  }
  // Finite x.
  [[nodiscard]] QUENCH_HOST_DEVICE constexpr std::int64_t operator()(float x) const noexcept {
    return static_cast<std::int64_t>((x < 0.0f ? -x : x) * unit);
  }
  [[nodiscard]] QUENCH_HOST_DEVICE constexpr float mean(std::int64_t sum, std::int64_t count) const noexcept {
    return static_cast<float>(static_cast<double>(sum) / static_cast<double>(count) / static_cast<double>(unit));
  }
};

// Scale of IntMapping::binary, rounded to T, the values' dtype, and to `stored`. NaN where `amax` is not finite.
template <class T>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float binary_scale(float mean, float amax, DType stored) noexcept {
  if (!(amax <= kLargestF32)) return bit_cast<float>(kF32QuietNan);
  return stored_scale(float(T(mean)), stored);
}

// Unclamped code of x under `scaled` = x / scale, without zero points. NaN propagates.
template <class RoundEven>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float code_of(float scaled, IntMapping mapping,
                                                         RoundEven round_even) noexcept {
  if (mapping == IntMapping::binary) return scaled < 0.0f ? -1.0f : scaled >= 0.0f ? 1.0f : scaled;
  if (mapping != IntMapping::stretched) return round_even(scaled);
  const float half = scaled * 0.5f, near = round_even(half);
  return 2.0f * (near > half ? near - 1.0f : near) + 1.0f;
}

// NaN in either bound makes both results NaN. Each step is rounded to T, the values' dtype; `stored`: scale dtype.
// All-zero groups get codes 0, of few levels the smallest scale. Not for IntMapping::binary, see binary_scale().
template <class T, class RoundEven>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr IntParameters int_parameters(float smallest, float largest,
                                                                        IntMapping mapping, int bits, DType stored,
                                                                        RoundEven round_even) noexcept {
  const auto round = [](float x) { return float(T(x)); };
  const IntRange range = int_range(bits);
  const auto lowest = static_cast<float>(range.lowest), highest = static_cast<float>(range.highest);
  const float steps = highest - lowest;
  if (mapping == IntMapping::float_zero_point || mapping == IntMapping::truncated_zero_point) {
    const float spread = round(round(largest - smallest) / steps), least = round(1e-6f);
    const float scale = stored_scale(spread < least ? least : spread, stored);
    return {scale, mapping == IntMapping::truncated_zero_point ? 0.0f : round(smallest - round(lowest * scale))};
  }
  const float low = smallest > 0.0f ? 0.0f : smallest, high = largest < 0.0f ? 0.0f : largest;
  float scale = 0.0f;
  if (mapping == IntMapping::symmetric) {
    scale = round((-low > high ? -low : high) / (steps / 2));
  } else if (mapping == IntMapping::symmetric_no_clipping) {
    // 1 bit: no positive code.
    const float negative = round(low / lowest), positive = highest > 0.0f ? round(high / highest) : 0.0f;
    scale = negative > positive ? negative : positive;
  } else if (has_few_levels(mapping)) {
    const float amax = -low > high ? -low : high;
    scale = amax <= kLargestF32 ? round(mapping == IntMapping::ternary ? amax / 1.5f : amax / 4.0f)
                                : bit_cast<float>(kF32QuietNan);
  } else {
    scale = round(round(high - low) / steps);
  }
  scale = stored_scale(scale, stored);
  float zero_point = 0.0f;
  if (mapping == IntMapping::asymmetric) {
    zero_point = round(lowest - round_even(round(low / scale)));
    zero_point = zero_point < lowest ? lowest : zero_point > highest ? highest : zero_point;
  }
  // A maximum may drop NaN.
  if (low != low || high != high) scale = zero_point = low + high;
  return {scale, zero_point};
}

}  // namespace quench
