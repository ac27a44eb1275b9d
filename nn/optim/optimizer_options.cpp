#include "nn/optim/optimizer_options.h"

namespace quench::nn {

Tensor make_master(const Parameter& parameter, const OptimizerOptions& options) {
  const Tensor value = parameter.variable.value();
  if (!options.master_weights || value.dtype() == DType::f32) return {};
  return Tensor::empty(value.shape(), DType::f32, value.device());
}

std::int64_t element_offset(const Parameter& parameter) {
  const Shape& shape = parameter.global_shape;
  return shape.rank() == 0 || shape[0] == 0 ? 0 : parameter.shard.row_begin * (parameter.numel() / shape[0]);
}

}  // namespace quench::nn
