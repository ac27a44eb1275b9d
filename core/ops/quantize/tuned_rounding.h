#pragma once
// Weights under tuned rounding (SignRound, arXiv:2309.05516): an offset of at most half a step by element, and a
// group's bounds times factors.
//
// Groups are consecutive elements of a row, `groups` = numel / group size of them in all; [N,K], [groups,2] contiguous.
// A group's scale is that of its bounds times its factors, rounded as it is stored. Results are equal bit for bit on
// all devices, sums included: element i of a group is of lane i % 32, lanes sum in f32 in order, then by halves.

#include "core/device/kernel_slot.h"
#include "core/number/rounding_grid.h"
#include "core/tensor/tensor.h"

namespace quench {

struct TunedRounding {
  Tensor w;        // f32 [N,K]
  Tensor offsets;  // f32 [N,K], steps
  Tensor bounds;   // f32 [groups,2], low <= 0 <= high
  Tensor factors;  // f32 [groups,2]; symmetric grids: equal
  GridForm grid;
};

// out = values * multiplier, f32 products, rounded once.
struct TunedValuesArgs {
  TunedRounding rounding;
  Tensor out;  // f32/bf16 [N,K]
  float multiplier = 1.0f;
};
extern constinit KernelSlot<TunedValuesArgs> tuned_values_slot;
void tuned_values(const TunedValuesArgs& args);

// Offsets and factors move by `rate` against the sign of the loss's derivative, straight-through: an offset by that of
// its value, unless the code is clipped, within +-0.5; factors by that of scale and zero point, within [0.5, 1.5],
// where scales are continuous. In place.
struct TunedStepArgs {
  TunedRounding rounding;
  Tensor gradient;  // f32 [N,K], of the loss by the values
  float rate = 0.0f;
};
extern constinit KernelSlot<TunedStepArgs> tuned_step_slot;
void tuned_step(const TunedStepArgs& args);

inline constexpr int kTunedLanes = 32;
inline constexpr float kMostTunedOffset = 0.5f, kLeastTunedFactor = 0.5f, kMostTunedFactor = 1.5f;

// Group as kernels read it.
struct TunedGroup {
  GridScale scale;
  float low, high;  // bounds
  float low_factor, high_factor;
};

template <class Element>
[[nodiscard]] QUENCH_HOST_DEVICE TunedGroup tuned_group(const GridForm& form, const float* bounds, const float* factors,
                                                        std::int64_t group) {
  TunedGroup made{{}, bounds[2 * group], bounds[2 * group + 1], factors[2 * group], factors[2 * group + 1]};
  made.scale = GridRounding<Element>::scale(form, made.low * made.low_factor, made.high * made.high_factor);
  return made;
}

[[nodiscard]] QUENCH_HOST_DEVICE constexpr float kept_within(float x, float least, float most) noexcept {
  return x < least ? least : x > most ? most : x;
}

// Terms of an element in the derivatives by scale and zero point.
struct TunedTerms {
  float scale = 0, zero_point = 0;
};

// Moves an element's offset.
template <class Element>
QUENCH_HOST_DEVICE TunedTerms step_offset(const GridRounding<Element>& rounding, const GridScale& scale, float w,
                                          float gradient, float rate, float& offset) {
  const float scaled = w / scale.scale;
  const GridCode made = rounding(scaled, offset, scale.zero_point);
  const float sign = gradient > 0 ? 1.0f : gradient < 0 ? -1.0f : 0.0f;
  const float moved = kept_within(offset - rate * sign, -kMostTunedOffset, kMostTunedOffset);
  offset = made.inside ? moved : offset;
  return {gradient * (made.inside ? made.code - scaled : made.code), made.inside ? 0.0f : -gradient * scale.scale};
}

[[nodiscard]] QUENCH_HOST_DEVICE constexpr float moved_factor(float factor, double derivative, float rate) noexcept {
  const float sign = derivative > 0 ? 1.0f : derivative < 0 ? -1.0f : 0.0f;
  return kept_within(factor - rate * sign, kLeastTunedFactor, kMostTunedFactor);
}

// Moves a group's factors. Asymmetric: scale = (high - low) / steps, zero point = lowest - low / scale.
QUENCH_HOST_DEVICE inline void step_factors(const GridForm& form, const TunedGroup& group, const TunedTerms& sums,
                                            float rate, float* factors) {
  if (form.symmetric()) {
    factors[0] = factors[1] = moved_factor(group.high_factor, static_cast<double>(sums.scale), rate);
    return;
  }
  const auto by_scale = static_cast<double>(sums.scale), by_zero = static_cast<double>(sums.zero_point);
  const auto s = static_cast<double>(group.scale.scale), steps = static_cast<double>(form.steps());
  const double low = static_cast<double>(group.low) * static_cast<double>(group.low_factor);
  const double slope = low / (s * s * steps);
  factors[0] = moved_factor(group.low_factor, by_scale / steps + by_zero * (1 / s + slope), rate);
  factors[1] = moved_factor(group.high_factor, by_scale / steps + by_zero * slope, rate);
}

}  // namespace quench
