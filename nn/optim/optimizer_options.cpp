#include "nn/optim/optimizer_options.h"

#include "core/ops/elementwise.h"

namespace quench::nn {
namespace {

Tensor empty_state(const Shape& shape, DType dtype, Device device, bool in_host_memory) {
  if (!in_host_memory) return Tensor::empty(shape, dtype, device);
  return device.is_meta() ? Tensor::from_host(nullptr, shape, dtype) : Tensor::empty_pinned(shape, dtype, device);
}

}  // namespace

Tensor make_state(const Shape& shape, DType dtype, Device device, bool in_host_memory) {
  Tensor state = empty_state(shape, dtype, device, in_host_memory);
  if (!device.is_meta()) state.zero();
  return state;
}

void cast_state(const Tensor& from, const Tensor& to) {
  if (from.device() == to.device()) return cast({from, to});
  if (from.device().is_meta()) return;
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor values = from.dtype() == to.dtype() ? from : Tensor::empty(from.shape(), to.dtype(), from.device());
  if (from.dtype() != to.dtype()) cast({from, values});
  Tensor(to).copy_from(values);
}

Tensor make_master(const Parameter& parameter, const OptimizerOptions& options) {
  const Tensor value = parameter.variable.value();
  if (!options.master_weights || value.dtype() == DType::f32) return {};
  return empty_state(value.shape(), DType::f32, value.device(), options.host_state);
}

std::int64_t element_offset(const Parameter& parameter) {
  const Shape& shape = parameter.global_shape;
  if (shape.rank() == 0 || shape[0] == 0) return 0;
  // Slices have other elements; draws of theirs do not repeat.
  const std::int64_t slice = parameter.slice.is_whole() ? 0 : parameter.slice.place.index * parameter.numel();
  return slice + parameter.shard.row_begin * (parameter.numel() / shape[0]);
}

}  // namespace quench::nn
