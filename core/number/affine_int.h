#pragma once
// Affine integer quantization, 1 to 8 bits: value ~ (code - zero_point) * scale. TorchAO's formulas for dynamic scales.

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
};

struct IntRange {
  int lowest, highest;
};
[[nodiscard]] QUENCH_HOST_DEVICE constexpr IntRange int_range(int bits) noexcept {
  return {-(1 << (bits - 1)), (1 << (bits - 1)) - 1};
}

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

// NaN in either bound makes both results NaN. Each step is rounded to T, the values' dtype; `stored`: scale dtype.
// All-zero groups get codes 0.
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
