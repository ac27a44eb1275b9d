#pragma once
// Scales of a weight's integer codes as a parameter that training moves (LSQ, Esser et al., 2020, arXiv:1902.08153).

#include <memory>

#include "nn/linear_kernel.h"
#include "recipes/qat/fake_quantizer.h"

namespace quench::recipes {

// [N, groups] in the layer's dtype, for weights under an integer format with a symmetric mapping.
[[nodiscard]] std::shared_ptr<nn::Parameter> make_scale_parameter(const nn::LinearInfo& layer,
                                                                  const IntQuantOptions& integers);

// The scales that follow from the values of the weight, of the rows that are here: what training begins with.
void begin_scales(nn::Parameter& scales, const nn::Parameter& weight, const IntQuantOptions& integers);

// The gradient of the scales, added to `into`, from that of the weight's quantized values: core/ops/quantize/
// scale_gradient.h, with LSQ's factor.
void contribute_scale_gradient(autograd::Gradient& into, const nn::Parameter& scales, const nn::Parameter& weight,
                               const Tensor& dvalue, const IntQuantOptions& integers);

// x, or its values as f32.
[[nodiscard]] Tensor in_f32(const Tensor& x);

}  // namespace quench::recipes
