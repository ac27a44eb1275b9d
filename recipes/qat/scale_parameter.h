#pragma once
// Learned scales of integer weights (LSQ, Esser et al., 2020, arXiv:1902.08153; few levels: ParetoQ, Liu et al., 2025,
// arXiv:2502.02631).

#include <memory>

#include "nn/modules/linear_kernel.h"
#include "recipes/qat/fake_quantizer.h"

namespace quench::recipes {

// [N, groups] in the layer's dtype, for integer formats without zero points.
[[nodiscard]] std::shared_ptr<nn::Parameter> make_scale_parameter(const nn::LinearInfo& layer,
                                                                  const IntQuantOptions& integers);

// From the local rows of the weight.
void begin_scales(nn::Parameter& scales, const nn::Parameter& weight, const IntQuantOptions& integers);

// Accumulates the gradient of the scales, with LSQ's factor, from that of the quantized weight
// (core/ops/quantize/scale_gradient.h).
void contribute_scale_gradient(autograd::Gradient& into, const nn::Parameter& scales, const nn::Parameter& weight,
                               const Tensor& dvalue, const IntQuantOptions& integers);

// The scales that the layer computes with, f32: the parameter's values, rounded to IntQuantOptions::scale_dtype.
[[nodiscard]] Tensor used_scales(const Tensor& parameter, const IntQuantOptions& integers);

}  // namespace quench::recipes
