#pragma once
// Gradient of trained quantization scales: LSQ (Esser et al., 2020, arXiv:1902.08153, equation 3).
//
// v = clamp(round(w / s)) * s, symmetric, options.bits bits. Straight-through: dv/ds = code - w / s in range, else the
// clamped code. A scale's gradient is the sum over its group of dv/ds * dvalue; LSQ multiplies it by 1 / sqrt(group
// size * largest code).

#include "core/ops/quantize/quantize_int.h"

namespace quench {

struct ScaleGradientArgs {
  Tensor w;       // [N,K], f32 or bf16, contiguous
  Tensor dvalue;  // [N,K], gradient of the values; f32 or bf16, contiguous
  Tensor scales;  // f32 [N,G]
  Tensor out;     // f32 [N,G]
  IntQuantOptions options;
  float factor = 1.0f;  // multiplies the sum
};
extern constinit KernelSlot<ScaleGradientArgs> scale_gradient_slot;
// f32 sums, deterministic. Throws invalid_argument naming the mismatched tensor, or for mappings with zero points.
void scale_gradient(const ScaleGradientArgs& args);

// LSQ's factor for a group size.
[[nodiscard]] float scale_gradient_factor(std::int64_t elements, int bits);

}  // namespace quench
