#include "recipes/qat/scale_parameter.h"

#include "core/ops/elementwise.h"
#include "core/ops/quantize/scale_gradient.h"

namespace quench::recipes {
namespace {

Tensor as_dtype(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Tensor out = Tensor::empty(x.shape(), dtype, x.device());
  cast({x, out});
  return out;
}

}  // namespace

Tensor used_scales(const Tensor& parameter, const IntQuantOptions& integers) {
  return as_dtype(as_dtype(parameter, integers.scale_dtype.value_or(parameter.dtype())), DType::f32);
}

std::shared_ptr<nn::Parameter> make_scale_parameter(const nn::LinearInfo& layer, const IntQuantOptions& integers) {
  nn::ParameterOptions options = layer.parameters;
  options.device = layer.device;
  const std::int64_t groups = int_groups("learned scales", layer.in_features, integers);
  auto scales =
      std::make_shared<nn::Parameter>(nn::make_parameter({layer.out_features, groups}, options, nn::Initializer::ones));
  scales->scales = true;
  return scales;
}

void begin_scales(nn::Parameter& scales, const nn::Parameter& weight, const IntQuantOptions& integers) {
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor rows = weight.variable.value();
  Tensor own = scales.variable.value();
  QUENCH_CHECK(rows.size(0) == own.size(0), "{}: {} rows of scales for {} of the weight", weight.name, own.size(0),
               rows.size(0));
  if (rows.numel() > 0) own.copy_from(as_dtype(int_scales(rows, integers).scales, own.dtype()));
  scales.mark_changed();
}

void contribute_scale_gradient(autograd::Gradient& into, const nn::Parameter& scales, const nn::Parameter& weight,
                               const Tensor& dvalue, const IntQuantOptions& integers) {
  const autograd::Weight::Acquired w = weight.weight().acquire(), s = scales.weight().acquire();
  const Tensor values = used_scales(s.value(), integers),
               out = Tensor::empty(values.shape(), DType::f32, values.device());
  const std::int64_t elements = w.value().size(1) / values.size(1);
  scale_gradient({.w = w.value(),
                  .dvalue = dvalue,
                  .scales = values,
                  .out = out,
                  .options = integers,
                  .factor = scale_gradient_factor(elements, integers)});
  const autograd::GradientTarget target = into.target();
  if (target.accumulate)
    accumulate({out, target.tensor});
  else
    Tensor(target.tensor).copy_from(as_dtype(out, target.tensor.dtype()));
}

}  // namespace quench::recipes
