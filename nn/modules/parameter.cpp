#include "nn/modules/parameter.h"

#include <algorithm>

namespace quench::nn {
namespace {

Tensor allocate_rows(Parameter& parameter, const Sharding& sharding, DType dtype, Device device) {
  const MemoryScope scope(MemoryCategory::parameters);
  Shape shape = parameter.global_shape;
  QUENCH_CHECK(sharding.parts == 1 || (parameter.experts > 0 && parameter.experts % sharding.parts == 0),
               "parameter {}: {} experts cannot be split into {} shards", parameter.name, parameter.experts,
               sharding.parts);
  parameter.shard = sharding.of(shape[0]);
  parameter.sharding = sharding;
  shape[0] = sharding.chunk(shape[0]);
  if (sharding.count == 1) return Tensor::empty(shape, dtype, device);
  parameter.padded = Tensor::empty(shape, dtype, device);
  const std::int64_t missing = shape[0] - parameter.shard.rows;
  if (missing > 0) parameter.padded.narrow(0, parameter.shard.rows, missing).zero();
  return parameter.padded.narrow(0, 0, parameter.shard.rows);
}

}  // namespace

ShardSpec Sharding::of(std::int64_t rows) const noexcept {
  const ShardSpec own = region(rows);
  const std::int64_t begin = std::min(index * chunk(rows), own.rows);
  return {own.row_begin + begin, std::min(chunk(rows), own.rows - begin)};
}

Parameter make_parameter(const Shape& shape, const ParameterOptions& options, Initializer initializer, float init_std,
                         std::int64_t experts) {
  Parameter parameter;
  parameter.global_shape = shape;
  parameter.slice.place = options.tensor;
  parameter.experts = experts;
  const Sharding& sharding = experts > 0 ? options.expert_sharding : options.sharding;
  Tensor value;
  if (options.deferred && sharding.is_whole()) {
    parameter.shard = sharding.of(shape[0]);
    value = Tensor::empty({0}, options.dtype, options.device);
  } else {
    value = allocate_rows(parameter, sharding, options.dtype, options.device);
  }
  parameter.variable = options.trainable ? Variable::leaf(value, options.grad_dtype) : Variable(value);
  parameter.initializer = initializer;
  parameter.init_std = init_std;
  return parameter;
}

void materialize(Parameter& parameter) {
  const Tensor empty = parameter.variable.value();
  if (parameter.whole.defined() || !parameter.sharding.is_whole() || empty.shape() == parameter.global_shape) return;
  const Tensor value = allocate_rows(parameter, parameter.sharding, empty.dtype(), empty.device());
  const auto gradient = parameter.variable.gradient();
  parameter.variable = gradient != nullptr ? Variable::leaf(value, gradient->dtype()) : Variable(value);
}

void shard_parameter(Parameter& parameter, const Sharding& sharding) {
  QUENCH_CHECK(parameter.sharding.is_whole(), "parameter {} is sharded already", parameter.name);
  const Tensor whole = parameter.variable.value();
  const auto gradient = parameter.variable.gradient();
  parameter.variable = Variable();
  Tensor value = allocate_rows(parameter, sharding, whole.dtype(), whole.device());
  if (value.numel() > 0) value.copy_from(whole.narrow(0, parameter.shard.row_begin, parameter.shard.rows));
  parameter.variable = gradient != nullptr ? Variable::leaf(value, gradient->dtype()) : Variable(value);
}

}  // namespace quench::nn
