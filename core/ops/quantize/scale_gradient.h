#pragma once
// LSQ gradient of trained quantization scales (Esser et al., 2020, arXiv:1902.08153, equation 3).
//
// v = code * s without zero points. Straight-through: dv/ds = code - w / s in range, else the clamped code; of
// IntMapping::binary the code. The gradient sums dv/ds * dvalue over a group; LSQ multiplies it by
// 1 / sqrt(group size * largest code).

#include "core/ops/quantize/quantize_int.h"

namespace quench {

struct ScaleGradientArgs {
  Tensor w;       // [N,K], f32/bf16, contiguous
  Tensor dvalue;  // [N,K], f32/bf16, contiguous
  Tensor scales;  // f32 [N,G]
  Tensor out;     // f32 [N,G]
  IntQuantOptions options;
  float factor = 1.0f;  // multiplies the sum
};
extern constinit KernelSlot<ScaleGradientArgs> scale_gradient_slot;
// Deterministic f32 sums; no zero points.
void scale_gradient(const ScaleGradientArgs& args);

// LSQ's factor.
[[nodiscard]] float scale_gradient_factor(std::int64_t elements, const IntQuantOptions& options);

// dv/ds of one element under `scaled` = w / s.
template <class RoundEven>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float scale_slope(float scaled, int bits, IntMapping mapping,
                                                             RoundEven round_even) noexcept {
  const IntRange range = int_range(bits, mapping);
  const auto lowest = static_cast<float>(range.lowest), highest = static_cast<float>(range.highest);
  const float code = code_of(scaled, mapping, round_even);
  if (mapping == IntMapping::binary) return code;
  return code < lowest ? lowest : code > highest ? highest : code - scaled;
}

}  // namespace quench
