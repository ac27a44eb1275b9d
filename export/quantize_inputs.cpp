#include "export/quantize_inputs.h"

#include "core/ops/quantize.h"
#include "core/ops/quantize_int.h"

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

}  // namespace

recipes::InputRounding input_rounding(const OperandScheme& inputs, std::string_view name) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, !inputs.calibrated,
                  "{}: inputs with scales found by calibration are not supported", name);
  if (!inputs.element) return integer_rounding(inputs);
  if (inputs.scale == ScaleForm::e8m0) return [inputs](const Tensor& x) { return round_mx(x, inputs); };
  QUENCH_CHECK_AS(ErrorCode::unsupported,
                  inputs.element == ElementFormat::e4m3 && inputs.scale == ScaleForm::high_precision &&
                      inputs.sharing != ScaleSharing::block,
                  "{}: inputs in {} with these scales are not supported", name, to_string(*inputs.element));
  return [inputs](const Tensor& x) { return round_float8(x, inputs); };
}

}  // namespace quench
