#include "autograd/quant_output_request.h"

namespace quench::autograd {
namespace {

QuantOutputs make_outputs(const QuantOutputRequest& request, const Shape& shape, DType dtype, Device device) {
  QuantOutputs quant_outputs;
  if (!request.wanted()) return quant_outputs;
  QUENCH_CHECK(shape.rank() == 2, "quantization outputs: the result is {}, expected a matrix", shape.to_string());
  if (request.amax) {
    quant_outputs.accumulates_amax = request.amax_into.defined();
    quant_outputs.amax = request.amax_into.defined() ? request.amax_into : Tensor::zeros({}, DType::f32, device);
  }
  if (request.column_amax) quant_outputs.column_amax = Tensor::zeros({1, shape[1]}, DType::f32, device);
  if (request.rows) {
    const QuantFormat format = code_format(request.element, Granularity::row);
    quant_outputs.rows = QuantTensor::empty(format, shape, dtype, device);
    quant_outputs.power_of_two = request.power_of_two;
  }
  return quant_outputs;
}

}  // namespace

QuantOutputs make_quant_outputs(const QuantOutputRequest& request, const Tensor& result) {
  return make_outputs(request, result.shape(), result.dtype(), result.device());
}

QuantOutputs make_coded_outputs(const QuantOutputRequest& request, const Shape& shape, const Tensor& like) {
  QuantOutputs quant_outputs = make_outputs(request, shape, like.dtype(), like.device());
  if (!request.scale.defined() || shape.numel() <= 1 || shape[0] % request.row_multiple != 0) return quant_outputs;
  const auto codes = [&](Orientation orientation) {
    const QuantFormat format = code_format(request.element, Granularity::tensor, orientation);
    const Tensor payload = Tensor::empty(format.payload_shape(shape), payload_dtype(request.element), like.device());
    return QuantTensor(format, shape, like.dtype(), payload, request.scale);
  };
  if (request.natural_codes) quant_outputs.codes = codes(Orientation::natural);
  if (request.transposed_codes) quant_outputs.transposed_codes = codes(Orientation::transposed);
  return quant_outputs;
}

Tensor unstored_value(const Shape& shape, const Tensor& like) {
  return Tensor::empty({1}, like.dtype(), like.device()).strided(shape, Shape{0, 0}, 0);
}

bool is_unstored(const Tensor& value) {
  return value.rank() == 2 && value.stride(0) == 0 && value.stride(1) == 0 && value.numel() > 1;
}

}  // namespace quench::autograd
