#pragma once
// Learned scales of integer weights (LSQ, Esser et al., 2020, arXiv:1902.08153).

#include <memory>

#include "nn/modules/linear_kernel.h"
#include "recipes/qat/fake_quantizer.h"

namespace quench::recipes {

// [N, groups] in the layer's dtype, for symmetric integer formats.
[[nodiscard]] std::shared_ptr<nn::Parameter> make_scale_parameter(const nn::LinearInfo& layer,
                                                                  const IntQuantOptions& integers);

// From the local rows of the weight.
void begin_scales(nn::Parameter& scales, const nn::Parameter& weight, const IntQuantOptions& integers);

// Accumulates the gradient of the scales, with LSQ's factor, from that of the quantized weight
// (core/ops/quantize/scale_gradient.h).
void contribute_scale_gradient(autograd::Gradient& into, const nn::Parameter& scales, const nn::Parameter& weight,
                               const Tensor& dvalue, const IntQuantOptions& integers);

// x, or a copy in f32.
[[nodiscard]] Tensor in_f32(const Tensor& x);

}  // namespace quench::recipes
