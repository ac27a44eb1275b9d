#include "autograd/quant_request.h"

namespace quench::autograd {

Float8Sink make_sink(const QuantRequest& request, const Tensor& result) {
  Float8Sink sink;
  if (!request.wanted()) return sink;
  QUENCH_CHECK(result.rank() == 2, "make_sink: the result is {}, expected a matrix", result.describe());
  if (request.amax) sink.amax = Tensor::zeros({}, DType::f32, result.device());
  if (request.column_amax) sink.column_amax = Tensor::zeros({1, result.size(1)}, DType::f32, result.device());
  if (request.rows) {
    const QuantFormat format{.element = request.element, .granularity = Granularity::row};
    sink.rows = QuantTensor::empty(format, result.shape(), result.dtype(), result.device());
    sink.power_of_two = request.power_of_two;
  }
  return sink;
}

}  // namespace quench::autograd
