#include "export/ptq/quantize_inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "core/number/float8_decode.h"
#include "core/ops/quantize/fake_quantize_float8.h"
#include "core/ops/quantize/quantize.h"

namespace quench {
namespace {

Tensor round_integers(const Tensor& x, const IntQuantOptions& options) {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor out = Tensor::empty_like(x);
  fake_quantize_int({.x = x, .out = out, .mask = {}, .scales = {}, .zero_points = {}, .options = options});
  return out;
}

recipes::InputRounding integer_rounding(const OperandScheme& inputs, IntDivision division) {
  const IntQuantOptions options{
      .bits = inputs.bits, .mapping = inputs.mapping, .group_size = inputs.group_size, .division = division};
  const bool by_token = inputs.bits == 8 && inputs.sharing == ScaleSharing::row;
  return {[options](const Tensor& x) { return round_integers(x, options); },
          by_token ? std::optional(options) : std::nullopt};
}

// The first columns of each row of [M, from], contiguous, to those of [M, to].
void copy_columns(const Tensor& from, const Tensor& to) {
  const std::int64_t count = std::min(from.size(1), to.size(1));
  const auto row = [&](const Tensor& x, std::int64_t r) {
    return x.narrow(0, r, 1).view({x.size(1)}).narrow(0, 0, count);
  };
  for (std::int64_t r = 0; r < from.size(0); ++r) row(to, r).copy_from(row(from, r));
}

Tensor round_float8(const Tensor& x, const OperandScheme& scheme) {
  const MemoryScope scope(MemoryCategory::activations);
  if (scheme.sharing == ScaleSharing::group && x.size(1) % scheme.group_size != 0) {  // a shorter last group
    const std::int64_t groups = (x.size(1) + scheme.group_size - 1) / scheme.group_size;
    const Tensor padded = Tensor::zeros({x.size(0), groups * scheme.group_size}, x.dtype(), x.device());
    copy_columns(x, padded);
    const Tensor out = Tensor::empty_like(x);
    copy_columns(round_float8(padded, scheme), out);
    return out;
  }
  const bool groups = scheme.sharing == ScaleSharing::group;
  const Tensor rows = groups ? x.view({x.numel() / scheme.group_size, scheme.group_size}) : x;
  const Tensor most = scheme.sharing == ScaleSharing::tensor ? amax(x, Granularity::tensor) : Tensor();
  const Tensor out = Tensor::empty_like(rows);
  fake_quantize_float8({.x = rows, .amax = most, .out = out, .scale_dtype = x.dtype()});
  return out.view(x.shape());
}

Tensor round_mx(const Tensor& x, const OperandScheme& scheme, MxScaleMode mode) {
  const MemoryScope scope(MemoryCategory::activations);
  return dequantize(quantize_mx(x, {.element = *scheme.element, .mode = mode}), x.dtype());
}

// Scalar on the GEMM's device.
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

// amax for which fake_quantize_float8 computes this scale: 448 * scale (at most FLT_MAX) or a neighbouring f32; if none
// does, 448 * scale.
float amax_of_scale(float scale) {
  const float near = std::min(scale * E4m3::kMax, std::numeric_limits<float>::max());
  for (const float amax : {near, std::nextafter(near, 0.0f), std::nextafter(near, 2.0f * near)})
    if (float8_decode_scale(amax, false) == scale) return amax;
  return near;
}

recipes::InputRounding calibrated_rounding(const OperandScheme& scheme, float scale, IntDivision division) {
  if (scheme.element) {
    return [most = std::make_shared<ScaleTensor>(amax_of_scale(scale), Shape{})](const Tensor& x) {
      const MemoryScope scope(MemoryCategory::activations);
      const Tensor out = Tensor::empty_like(x);
      fake_quantize_float8({.x = x, .amax = most->on(x.device()), .out = out});
      return out;
    };
  }
  return [scheme, division, one = std::make_shared<ScaleTensor>(scale, Shape{1, 1})](const Tensor& x) {
    const MemoryScope scope(MemoryCategory::activations);
    // As one row.
    const Tensor out = Tensor::empty_like(x);
    const Shape row{1, x.numel()};
    fake_quantize_int({.x = x.view(row),
                       .out = out.view(row),
                       .mask = {},
                       .scales = one->on(x.device()),
                       .zero_points = {},
                       .options = {.bits = scheme.bits, .mapping = IntMapping::symmetric, .division = division}});
    return out;
  };
}

recipes::InputRounding nvfp4_rounding(float scale) {
  const auto codes = [global = std::make_shared<ScaleTensor>(scale, Shape{1})](const Tensor& x) {
    return quantize_nvfp4(x, global->on(x.device()));
  };
  const auto values = [codes](const Tensor& x) {
    const MemoryScope scope(MemoryCategory::activations);
    return dequantize(codes(x), x.dtype());
  };
  return recipes::InputRounding(values).with_nvfp4(codes);
}

}  // namespace

recipes::InputRounding input_rounding(const OperandScheme& inputs, std::string_view name, std::optional<float> scale,
                                      const InputArithmetic& arithmetic) {
  QUENCH_CHECK_AS(ErrorCode::corrupt, !scale || (*scale > 0 && std::isfinite(*scale)),
                  "{}: the scale of its inputs is {}, expected a positive number", name, *scale);
  QUENCH_CHECK_AS(ErrorCode::corrupt, scale || !needs_input_scale(inputs),
                  "{}: the calibrated scale of its inputs is missing", name);
  if (inputs.scale == ScaleForm::e4m3_two_level) return nvfp4_rounding(*scale);
  if (inputs.calibrated) {
    QUENCH_CHECK_AS(ErrorCode::unsupported,
                    inputs.sharing == ScaleSharing::tensor && inputs.symmetric() &&
                        (!inputs.element || inputs.element == ElementFormat::e4m3),
                    "{}: calibrated inputs other than float8 or symmetric integers under one scale are not supported",
                    name);
    return calibrated_rounding(inputs, *scale, arithmetic.division);
  }
  if (!inputs.element) return integer_rounding(inputs, arithmetic.division);
  if (inputs.scale == ScaleForm::e8m0) {
    const MxScaleMode mode = *inputs.element == ElementFormat::e2m1 ? arithmetic.mx4_scale : MxScaleMode::rceil;
    return [inputs, mode](const Tensor& x) { return round_mx(x, inputs, mode); };
  }
  QUENCH_CHECK_AS(ErrorCode::unsupported,
                  inputs.element == ElementFormat::e4m3 && inputs.scale == ScaleForm::high_precision &&
                      inputs.sharing != ScaleSharing::block,
                  "{}: inputs in {} with these scales are not supported", name, to_string(*inputs.element));
  return [inputs](const Tensor& x) { return round_float8(x, inputs); };
}

}  // namespace quench
