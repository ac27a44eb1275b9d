#include "nn/parameter.h"

namespace quench::nn {

Parameter make_parameter(const Shape& shape, const ParameterOptions& options, Initializer initializer, float init_std) {
  const MemoryScope scope(MemoryCategory::parameters);
  const Tensor value = Tensor::empty(shape, options.dtype, options.device);
  Parameter parameter;
  parameter.variable = options.trainable ? Variable::leaf(value, options.grad_dtype) : Variable(value);
  parameter.global_shape = shape;
  parameter.shard = {0, shape[0]};
  parameter.initializer = initializer;
  parameter.init_std = init_std;
  return parameter;
}

}  // namespace quench::nn
