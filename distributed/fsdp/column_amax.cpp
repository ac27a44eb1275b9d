#include "distributed/fsdp/column_amax.h"

#include <utility>

#include "core/ops/quantize/quantize.h"

namespace quench::distributed {

ColumnAmax::ColumnAmax(const FlatLayout& layout, std::shared_ptr<FsdpContext> shared)
    : layout_(layout), shared_(std::move(shared)) {
  for (const FsdpParameter& parameter : layout_.parameters) {
    Entry& entry = entries_.emplace_back();
    if (parameter.layer == nullptr) continue;
    entry.place = elements_;
    elements_ += place_elements(parameter.padded_shape[1]);
  }
}

Tensor ColumnAmax::place(std::size_t parameter) const {
  const std::int64_t columns = layout_.parameters[parameter].padded_shape[1];
  return amax_.narrow(0, entries_[parameter].place, columns).view({1, columns});
}

bool ColumnAmax::current(std::size_t parameter) const {
  const Entry& entry = entries_[parameter];
  return entry.found && entry.version == layout_.parameters[parameter].parameter->version;
}

Tensor ColumnAmax::begin(std::size_t parameter) {
  if (!amax_.defined()) {
    const MemoryScope scope(MemoryCategory::parameters);
    amax_ = Tensor::zeros({elements_}, DType::f32, shared_->device);
  }
  shared_->clock->wait(sharing_);  // pending reduction of an earlier version
  Entry& entry = entries_[parameter];
  entry.found = begun_ = true;
  entry.version = layout_.parameters[parameter].parameter->version;
  entry.scale = Tensor();
  Tensor target = place(parameter);
  target.zero();
  return target;
}

void ColumnAmax::find(std::size_t parameter) {
  const Tensor target = begin(parameter);
  amax_slot(shared_->device.type, {layout_.parameters[parameter].parameter->padded, target, Granularity::column});
}

void ColumnAmax::share() {
  if (!std::exchange(begun_, false)) return;
  shared_->follow();
  const StreamGuard guard(shared_->stream);
  sharing_.push_back(shared_->shard->all_reduce(amax_, ReduceOp::max,
                                                layout_.parameters.front().parameter->name + " and others, columns"));
}

Tensor ColumnAmax::scale(std::size_t parameter, const autograd::WeightFormat& form) {
  shared_->clock->wait(sharing_);
  Entry& entry = entries_[parameter];
  if (!entry.scale.defined() || entry.form != form) {
    const MemoryScope scope(MemoryCategory::parameters);
    entry.scale = float8_scale(place(parameter), form.element, form.power_of_two_scale,
                               layout_.parameters[parameter].parameter->padded.dtype());
    entry.form = form;
  }
  return entry.scale;
}

}  // namespace quench::distributed
