#include "distributed/fsdp/fsdp_unit.h"

#include <utility>

#include "core/ops/elementwise.h"

namespace quench::distributed {

class FsdpUnit::Source final : public autograd::WeightStorage {
 public:
  Source(FsdpUnitWeights& weights, std::size_t parameter) : weights_(weights), parameter_(parameter) {}
  Tensor acquire() override { return weights_.acquire(parameter_); }
  QuantTensor acquire_quantized(const autograd::WeightFormat& form, Orientation /*wanted*/) override {
    return weights_.acquire_quantized(parameter_, form);
  }
  void release() noexcept override { weights_.release(); }

 private:
  FsdpUnitWeights& weights_;
  std::size_t parameter_;
};

FsdpUnit::FsdpUnit(const std::string& name, const std::vector<nn::Parameter*>& parameters,
                   const std::vector<const nn::Linear*>& layers, bool double_buffered, bool reduces_in_place,
                   std::shared_ptr<FsdpContext> shared)
    : name_(name),
      double_buffered_(double_buffered),
      reduces_in_place_(reduces_in_place),
      shared_(std::move(shared)),
      layout_(parameters, layers, *shared_),
      weights_(name, layout_, double_buffered, shared_) {
  for (const FsdpParameter& of : layout_.parameters) {
    nn::Parameter* parameter = of.parameter;
    Entry entry;
    if (parameter->variable.requires_grad()) {
      entry.gradient = std::make_shared<autograd::Gradient>(of.shape, shared_->reduce_dtype, shared_->device, true);
      entry.gradient->on_ready([this] {
        if (++ready_ == trainable_count_ && when_ready_) when_ready_();
      });
      ++trainable_count_;
    }
    parameter->whole = nn::Weight(of.shape, parameter->padded.dtype(), shared_->device,
                                  std::make_shared<Source>(weights_, entries_.size()), entry.gradient);
    entries_.push_back(std::move(entry));
  }
}

FsdpUnit::~FsdpUnit() {
  for (const FsdpParameter& entry : layout_.parameters) entry.parameter->whole = nn::Weight();
}

Tensor FsdpUnit::acquire(const Shape& shape) const {
  if (double_buffered_) return shared_->gradients.acquire(shape, shared_->reduce_dtype);
  const MemoryScope scope(shared_->gradients.category());
  return Tensor::empty(shape, shared_->reduce_dtype, shared_->device);
}

void FsdpUnit::give_back(Tensor& buffer) const {
  if (double_buffered_) shared_->gradients.give_back(buffer);
  buffer = Tensor();
}

void FsdpUnit::attach_gradients() {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (entry.gradient == nullptr || std::exchange(entry.attached, true)) continue;
    entry.gradient->set_buffer([this, i] { return make_gradient(i); });
  }
}

Tensor FsdpUnit::make_gradient(std::size_t parameter) {
  const FsdpParameter& of = layout_.parameters[parameter];
  Tensor& values = entries_[parameter].gradient_values;
  values = acquire(of.padded_shape);
  const std::int64_t rows = of.shape[0], more = of.padded_shape[0] - rows;
  if (more > 0) values.narrow(0, rows, more).zero();
  return values.narrow(0, 0, rows);
}

void FsdpUnit::pack_gradients() {
  const std::int64_t processes = shared_->processes();
  small_.resize(layout_.small.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    const FsdpParameter& of = layout_.parameters[i];
    if (entry.gradient == nullptr || !of.small()) continue;
    auto& [all, reduced] = small_[*of.buffer];
    if (!reduced.defined()) {
      const std::int64_t elements = layout_.small[*of.buffer].numel();
      all = acquire({elements * processes});
      all.zero();  // padding and frozen parameters
      reduced = Tensor::empty({elements}, shared_->reduce_dtype, shared_->device);
    }
    copy_rows({entry.gradient_values.view({processes, of.chunk_elements()}), layout_.chunks(all, of, processes)});
    entry.reduced = reduced.narrow(0, of.place, of.chunk_elements()).view(of.parameter->padded.shape());
  }
}

void FsdpUnit::begin_reduce() {
  attach_gradients();
  const MemoryScope scope(MemoryCategory::gradients);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (entry.gradient == nullptr) continue;
    if (!entry.gradient->has_value()) entry.gradient->target().tensor.zero();
    const FsdpParameter& of = layout_.parameters[i];
    if (of.small()) continue;
    const Shape& shape = of.parameter->padded.shape();
    entry.reduced = reduces_in_place_ ? entry.gradient_values.narrow(0, of.group->rank() * shape[0], shape[0])
                                      : Tensor::empty(shape, shared_->reduce_dtype, shared_->device);
  }
  pack_gradients();
  shared_->follow();
  const StreamGuard guard(shared_->stream);
  shared_->for_each_group([&](ProcessGroup& group) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const FsdpParameter& of = layout_.parameters[i];
      if (entries_[i].gradient == nullptr || of.small() || of.group != &group) continue;
      reducing_.push_back(
          group.reduce_scatter(entries_[i].gradient_values, entries_[i].reduced, ReduceOp::sum, of.parameter->name));
    }
    if (&group != shared_->shard.get()) return;
    for (const auto& [all, reduced] : small_)
      if (reduced.defined()) reducing_.push_back(group.reduce_scatter(all, reduced, ReduceOp::sum, name_));
  });
}

void FsdpUnit::end_reduce() {
  shared_->clock->wait(reducing_);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (entry.gradient == nullptr) continue;
    const nn::Parameter& parameter = *layout_.parameters[i].parameter;
    const Tensor rows = std::exchange(entry.reduced, Tensor()).narrow(0, 0, parameter.shard.rows);
    const bool owned = !reduces_in_place_ || layout_.parameters[i].small();
    autograd::Gradient& sum = *parameter.variable.gradient();
    if (owned && !sum.has_value() && sum.dtype() == rows.dtype())
      sum.set_value(rows);
    else
      sum.contribute(rows);
    entry.gradient->release();
    give_back(entry.gradient_values);
    entry.attached = false;
  }
  for (auto& [all, reduced] : std::exchange(small_, {}))
    if (all.defined()) give_back(all);
}

}  // namespace quench::distributed
