#pragma once
// Integer codes of floats: value ~ (code - zero_point) * scale, with codes of 1 to 8 bits in two's complement. The
// formulas are TorchAO's (quant_primitives.py: choose_qparams_affine, quantize_affine) for dynamic scales.

#include <cstdint>

#include "core/number/dtype.h"
#include "core/number/float_types.h"

namespace quench {

// How scale and zero point follow from the smallest and the largest value of a group. lowest and highest are the ends
// of the codes' range; "with 0": 0 counts as one of the group's values.
enum class IntMapping : std::uint8_t {
  symmetric,              // scale = largest magnitude / ((highest - lowest) / 2); the largest positive value may clip
  symmetric_no_clipping,  // scale = the larger of min / lowest and max / highest
  asymmetric,             // scale = (max - min) / (highest - lowest) with 0; an integer zero point
  float_zero_point,       // scale = (max - min) / (highest - lowest) without 0, at least 1e-6; the zero point is the
                          // value of code 0 (tinygemm): value ~ code * scale + zero_point
  // TorchAO 0.19's IntxFakeQuantizeConfig with an asymmetric mapping, which makes an integer of the zero point above:
  // always 0. For comparison with models that were trained with it.
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
  float zero_point;  // an integer, but for float_zero_point
};

// A scale as it is stored; never 0.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float stored_scale(float scale, DType dtype) noexcept {
  constexpr float kSmallestNormal = 0x1p-126f, kSmallestNormalF16 = 0x1p-14f;
  if (dtype == DType::f16) return scale < kSmallestNormalF16 ? kSmallestNormalF16 : float(float16(scale));
  if (scale < kSmallestNormal) return kSmallestNormal;
  return dtype == DType::bf16 ? float(bfloat16(scale)) : scale;
}

// `smallest` and `largest` of a group; one that is NaN makes both results NaN. Each step is rounded to the dtype of the
// values, T; `stored` is the dtype that the scale is kept in. An all-zero group has codes 0.
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
  // A comparison with NaN is false: NaN stays.
  const float low = smallest > 0.0f ? 0.0f : smallest, high = largest < 0.0f ? 0.0f : largest;
  float scale = 0.0f;
  if (mapping == IntMapping::symmetric) {
    scale = round((-low > high ? -low : high) / (steps / 2));
  } else if (mapping == IntMapping::symmetric_no_clipping) {
    // One bit has no positive code.
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
  // NaN on one side only is lost in a maximum.
  if (low != low || high != high) scale = zero_point = low + high;
  return {scale, zero_point};
}

}  // namespace quench
