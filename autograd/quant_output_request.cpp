#include "autograd/quant_output_request.h"

namespace quench::autograd {

QuantOutputs make_quant_outputs(const QuantOutputRequest& request, const Tensor& result) {
  QuantOutputs quant_outputs;
  if (!request.wanted()) return quant_outputs;
  QUENCH_CHECK(result.rank() == 2, "make_quant_outputs: the result is {}, expected a matrix", result.describe());
  if (request.amax) {
    quant_outputs.accumulates_amax = request.amax_into.defined();
    quant_outputs.amax = request.amax_into.defined() ? request.amax_into : Tensor::zeros({}, DType::f32, result.device());
  }
  if (request.column_amax) quant_outputs.column_amax = Tensor::zeros({1, result.size(1)}, DType::f32, result.device());
  if (request.rows) {
    const QuantFormat format = code_format(request.element, Granularity::row);
    quant_outputs.rows = QuantTensor::empty(format, result.shape(), result.dtype(), result.device());
    quant_outputs.power_of_two = request.power_of_two;
  }
  return quant_outputs;
}

}  // namespace quench::autograd
