#include "export/quantize_inputs.h"

#include <cmath>
#include <memory>

#include "core/ops/quantize/quantize.h"
#include "core/ops/quantize/quantize_int.h"

namespace quench {
namespace {

Tensor round_integers(const Tensor& x, const IntQuantOptions& options) {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor out = Tensor::empty_like(x);
  fake_quantize_int({.x = x, .out = out, .mask = {}, .scales = {}, .zero_points = {}, .options = options});
  return out;
}

recipes::InputRounding integer_rounding(const OperandScheme& inputs) {
  const IntQuantOptions options{.bits = inputs.bits, .mapping = inputs.mapping, .group_size = inputs.group_size};
  const bool by_token = inputs.bits == 8 && inputs.sharing == ScaleSharing::row;
  return {[options](const Tensor& x) { return round_integers(x, options); },
          by_token ? std::optional(options) : std::nullopt};
}

Tensor round_float8(const Tensor& x, const OperandScheme& scheme) {
  const MemoryScope scope(MemoryCategory::activations);
  const bool groups = scheme.sharing == ScaleSharing::group;
  const Tensor rows = groups ? x.view({x.numel() / scheme.group_size, scheme.group_size}) : x;
  const Granularity granularity = scheme.sharing == ScaleSharing::tensor ? Granularity::tensor : Granularity::row;
  return dequantize(quantize_float8(rows, {.granularity = granularity}), x.dtype()).view(x.shape());
}

Tensor round_mx(const Tensor& x, const OperandScheme& scheme) {
  const MemoryScope scope(MemoryCategory::activations);
  return dequantize(quantize_mx(x, {.element = *scheme.element}), x.dtype());
}

// A number where products are computed.
class ScaleTensor {
 public:
  ScaleTensor(float value, Shape shape) : value_(Tensor::empty(shape, DType::f32)) { *value_.data<float>() = value; }
  const Tensor& on(Device device) {
    if (value_.device() != device) value_ = value_.to(device);
    return value_;
  }

 private:
  Tensor value_;
};

// One scale for all inputs.
recipes::InputRounding calibrated_rounding(const OperandScheme& scheme, float scale) {
  if (scheme.element) {
    // cast_float8 multiplies.
    return [encode = std::make_shared<ScaleTensor>(1.0f / scale, Shape{})](const Tensor& x) {
      const MemoryScope scope(MemoryCategory::activations);
      return dequantize(cast_float8(x, encode->on(x.device()), ElementFormat::e4m3, Granularity::tensor), x.dtype());
    };
  }
  return [scheme, one = std::make_shared<ScaleTensor>(scale, Shape{1, 1})](const Tensor& x) {
    const MemoryScope scope(MemoryCategory::activations);
    // All values as one row.
    const Tensor out = Tensor::empty_like(x);
    const Shape row{1, x.numel()};
    fake_quantize_int({.x = x.view(row),
                       .out = out.view(row),
                       .mask = {},
                       .scales = one->on(x.device()),
                       .zero_points = {},
                       .options = {.bits = scheme.bits, .mapping = IntMapping::symmetric}});
    return out;
  };
}

recipes::InputRounding nvfp4_rounding(std::optional<float> scale) {
  const auto global = scale ? std::make_shared<ScaleTensor>(*scale, Shape{1}) : nullptr;
  return [global](const Tensor& x) {
    const MemoryScope scope(MemoryCategory::activations);
    const Tensor factor = global != nullptr ? global->on(x.device()) : nvfp4_global_scale(amax(x, Granularity::tensor));
    return dequantize(quantize_nvfp4(x, factor), x.dtype());
  };
}

}  // namespace

recipes::InputRounding input_rounding(const OperandScheme& inputs, std::string_view name, std::optional<float> scale) {
  QUENCH_CHECK_AS(ErrorCode::corrupt, !scale || (*scale > 0 && std::isfinite(*scale)),
                  "{}: the scale of its inputs is {}, expected a positive number", name, *scale);
  if (inputs.scale == ScaleForm::e4m3_two_level) return nvfp4_rounding(scale);
  if (inputs.calibrated) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, scale.has_value(), "{}: the calibrated scale of its inputs is missing", name);
    QUENCH_CHECK_AS(ErrorCode::unsupported,
                    inputs.sharing == ScaleSharing::tensor && inputs.symmetric() &&
                        (!inputs.element || inputs.element == ElementFormat::e4m3),
                    "{}: calibrated inputs other than float8 or symmetric integers under one scale are not supported",
                    name);
    return calibrated_rounding(inputs, *scale);
  }
  if (!inputs.element) return integer_rounding(inputs);
  if (inputs.scale == ScaleForm::e8m0) return [inputs](const Tensor& x) { return round_mx(x, inputs); };
  QUENCH_CHECK_AS(ErrorCode::unsupported,
                  inputs.element == ElementFormat::e4m3 && inputs.scale == ScaleForm::high_precision &&
                      inputs.sharing != ScaleSharing::block,
                  "{}: inputs in {} with these scales are not supported", name, to_string(*inputs.element));
  return [inputs](const Tensor& x) { return round_float8(x, inputs); };
}

}  // namespace quench
