#pragma once
// The gradient of the scales of fake-quantized weights, where scales are trained: LSQ (Esser et al., 2020,
// arXiv:1902.08153, equation 3).
//
// The value of w under scale s is v = clamp(round(w / s)) * s with codes of options.bits bits, symmetric. With the
// rounding passed straight through, dv/ds = code - w / s within the range of codes, and the range's end that w is
// clipped to outside of it. The gradient of a group's scale is the sum of dv/ds over the group, each times the gradient
// of v; LSQ multiplies it by 1 / sqrt(elements of the group * largest code).

#include "core/ops/quantize/quantize_int.h"

namespace quench {

struct ScaleGradientArgs {
  Tensor w;       // [N,K], f32 or bf16, contiguous
  Tensor dvalue;  // [N,K], gradient of the values; f32 or bf16, contiguous
  Tensor scales;  // f32 [N,G]
  Tensor out;     // f32 [N,G]
  IntQuantOptions options;
  float factor = 1.0f;  // of the sum
};
extern constinit KernelSlot<ScaleGradientArgs> scale_gradient_slot;
// Sums are f32 in a fixed order. Throws invalid_argument naming the tensor that does not fit, or a mapping with zero
// points.
void scale_gradient(const ScaleGradientArgs& args);

// LSQ's factor for groups of that many elements.
[[nodiscard]] float scale_gradient_factor(std::int64_t elements, int bits);

}  // namespace quench
