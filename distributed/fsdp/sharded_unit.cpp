#include "distributed/fsdp/sharded_unit.h"

#include <utility>

#include "core/ops/elementwise.h"

namespace quench::distributed {
namespace {

// A chunk of fewer bytes costs more to start than to send.
constexpr std::size_t kSmallBytes = std::size_t{1} << 20;
// Chunks begin at multiples of 128 bytes of the widest type.
constexpr std::int64_t kPlaceElements = 32;

}  // namespace

// What layers get as the weight's values.
class ShardedUnit::Source final : public autograd::WeightSource {
 public:
  Source(ShardedUnit& unit, std::size_t entry) : unit_(unit), entry_(entry) {}
  Tensor request() override { return unit_.request(entry_); }
  void done() noexcept override { unit_.done(); }

 private:
  ShardedUnit& unit_;
  std::size_t entry_;
};

ShardedUnit::ShardedUnit(std::string name, std::vector<nn::Parameter*> parameters, bool takes_turns,
                         std::shared_ptr<Shared> shared)
    : name_(std::move(name)), takes_turns_(takes_turns), shared_(std::move(shared)) {
  for (nn::Parameter* parameter : parameters) {
    Entry entry{.parameter = parameter,
                .group = parameter->sharding.parts > 1 ? shared_->expert_shard : shared_->shard,
                .shape = parameter->global_shape,
                .padded_shape = parameter->global_shape};
    entry.shape[0] = parameter->sharding.region(entry.shape[0]).rows;
    entry.padded_shape[0] = parameter->padded.size(0) * entry.group->size();
    if (parameter->variable.requires_grad()) {
      entry.gradient = std::make_shared<autograd::Gradient>(entry.shape, shared_->reduce_dtype, shared_->device, true);
      entry.gradient->on_ready([this] { ++ready_; });
      ++trainable_count_;
    }
    parameter->whole = nn::Weight(entry.shape, parameter->padded.dtype(), shared_->device,
                                  std::make_shared<Source>(*this, entries_.size()), entry.gradient);
    entries_.push_back(std::move(entry));
  }
  trainable_ = trainable_count_ > 0;
  pack_small();
}

void ShardedUnit::pack_small() {
  std::int64_t elements = 0;
  DType dtype = DType::f32;
  for (Entry& entry : entries_) {
    const Tensor& chunk = entry.parameter->padded;
    // They travel as one within one group.
    if (entry.group != shared_->shard || chunk.nbytes() >= kSmallBytes || (elements > 0 && chunk.dtype() != dtype))
      continue;
    dtype = chunk.dtype();
    entry.place = elements;
    elements += (chunk.numel() + kPlaceElements - 1) / kPlaceElements * kPlaceElements;
  }
  if (elements == 0) return;
  const MemoryScope scope(MemoryCategory::parameters);
  small_ = Tensor::zeros({elements}, dtype, shared_->device);
  for (Entry& entry : entries_) {
    if (!entry.small()) continue;
    nn::Parameter& parameter = *entry.parameter;
    const Shape shape = parameter.padded.shape();
    parameter.padded = small_.narrow(0, entry.place, shape.numel()).view(shape);
    parameter.variable.set_value(parameter.padded.narrow(0, 0, parameter.shard.rows));
  }
}

Tensor ShardedUnit::small_chunks(const Tensor& sent, const Entry& entry) const {
  return sent.view({shared_->shard->size(), small_.numel()}).narrow(1, entry.place, entry.parameter->padded.numel());
}

ShardedUnit::~ShardedUnit() {
  for (Entry& entry : entries_) entry.parameter->whole = nn::Weight();
}

Tensor ShardedUnit::acquire(BufferPool& pool, const Shape& shape, DType dtype) const {
  if (takes_turns_) return pool.acquire(shape, dtype);
  const MemoryScope scope(pool.category());
  return Tensor::empty(shape, dtype, shared_->device);
}

void ShardedUnit::give_back(BufferPool& pool, Tensor& buffer) const {
  if (takes_turns_) pool.give_back(buffer);
  buffer = Tensor();
}

void ShardedUnit::follow() const {
  Backend& owner = backend(shared_->device.type);
  owner.record(shared_->reached, current_stream(shared_->device));
  owner.wait(shared_->stream, shared_->reached);
}

void ShardedUnit::for_each_group(const std::function<void(ProcessGroup&)>& work) const {
  const auto in_one_batch = [&](ProcessGroup& group) {
    group.begin_batch();
    work(group);
    group.end_batch();
  };
  in_one_batch(*shared_->shard);
  if (shared_->expert_shard != shared_->shard) in_one_batch(*shared_->expert_shard);
}

bool ShardedUnit::current() const {
  if (!gathered_) return false;
  for (const Entry& entry : entries_)
    if (entry.version != entry.parameter->version) return false;
  return true;
}

void ShardedUnit::gather() {
  if (current()) return;
  end_gather();
  for (Entry& entry : entries_)
    if (!entry.values.defined())
      entry.values = acquire(shared_->weights, entry.padded_shape, entry.parameter->padded.dtype());
  if (small_.defined())
    small_gathered_ = acquire(shared_->weights, {small_.numel() * shared_->shard->size()}, small_.dtype());
  follow();
  const StreamGuard guard(shared_->stream);
  for_each_group([this](ProcessGroup& group) {
    for (Entry& entry : entries_) {
      if (entry.group.get() != &group || entry.small()) continue;
      gathering_.push_back(group.all_gather(entry.parameter->padded, entry.values, entry.parameter->name));
    }
    if (small_.defined() && &group == shared_->shard.get())
      gathering_.push_back(group.all_gather(small_, small_gathered_, name_));
  });
  for (Entry& entry : entries_) entry.version = entry.parameter->version;
  gathered_ = true;
}

void ShardedUnit::end_gather() {
  shared_->clock->wait(gathering_);
  if (!small_gathered_.defined()) return;
  const std::int64_t processes = shared_->shard->size();
  for (const Entry& entry : entries_)
    if (entry.small())
      copy_rows(
          {small_chunks(small_gathered_, entry), entry.values.view({processes, entry.parameter->padded.numel()})});
  give_back(shared_->weights, small_gathered_);
}

void ShardedUnit::free() {
  if (!gathered_) return;
  end_gather();
  for (Entry& entry : entries_) give_back(shared_->weights, entry.values);
  gathered_ = false;
}

Tensor ShardedUnit::request(std::size_t entry) {
  if (users_ == 0) gather();
  end_gather();
  ++users_;
  const Entry& wanted = entries_[entry];
  return wanted.values.narrow(0, 0, wanted.shape[0]);
}

void ShardedUnit::done() noexcept {
  if (--users_ == 0 && frees_itself_) free();
}

void ShardedUnit::attach_gradients() {
  for (Entry& entry : entries_) {
    if (entry.gradient == nullptr || entry.gradient_values.defined()) continue;
    entry.gradient_values = acquire(shared_->gradients, entry.padded_shape, shared_->reduce_dtype);
    const std::int64_t rows = entry.shape[0], more = entry.padded_shape[0] - rows;
    if (more > 0) entry.gradient_values.narrow(0, rows, more).zero();
    entry.gradient->set_buffer(entry.gradient_values.narrow(0, 0, rows));
  }
}

Tensor ShardedUnit::pack_gradients() {
  const std::int64_t processes = shared_->shard->size();
  Tensor reduced;
  for (Entry& entry : entries_) {
    if (entry.gradient == nullptr || !entry.small()) continue;
    if (!reduced.defined()) {
      small_gradients_ = acquire(shared_->gradients, {small_.numel() * processes}, shared_->reduce_dtype);
      small_gradients_.zero();  // between the chunks, and those of frozen parameters
      reduced = Tensor::empty({small_.numel()}, shared_->reduce_dtype, shared_->device);
    }
    const std::int64_t elements = entry.parameter->padded.numel();
    copy_rows({entry.gradient_values.view({processes, elements}), small_chunks(small_gradients_, entry)});
    entry.reduced = reduced.narrow(0, entry.place, elements).view(entry.parameter->padded.shape());
  }
  return reduced;
}

void ShardedUnit::begin_reduce() {
  attach_gradients();
  const MemoryScope scope(MemoryCategory::gradients);
  for (Entry& entry : entries_) {
    if (entry.gradient == nullptr) continue;
    if (!entry.gradient->has_value()) entry.gradient->target().tensor.zero();
    if (!entry.small())
      entry.reduced = Tensor::empty(entry.parameter->padded.shape(), shared_->reduce_dtype, shared_->device);
  }
  const Tensor small_reduced = pack_gradients();
  follow();
  const StreamGuard guard(shared_->stream);
  for_each_group([&](ProcessGroup& group) {
    for (Entry& entry : entries_) {
      if (entry.gradient == nullptr || entry.group.get() != &group || entry.small()) continue;
      reducing_.push_back(
          group.reduce_scatter(entry.gradient_values, entry.reduced, ReduceOp::sum, entry.parameter->name));
    }
    if (small_reduced.defined() && &group == shared_->shard.get())
      reducing_.push_back(group.reduce_scatter(small_gradients_, small_reduced, ReduceOp::sum, name_));
  });
}

void ShardedUnit::end_reduce() {
  shared_->clock->wait(reducing_);
  for (Entry& entry : entries_) {
    if (entry.gradient == nullptr) continue;
    const Tensor rows = std::exchange(entry.reduced, Tensor()).narrow(0, 0, entry.parameter->shard.rows);
    autograd::Gradient& sum = *entry.parameter->variable.gradient();
    if (!sum.has_value() && sum.dtype() == rows.dtype())
      sum.set_value(rows);
    else
      sum.contribute(rows);
    entry.gradient->release();
    give_back(shared_->gradients, entry.gradient_values);
  }
  if (small_gradients_.defined()) give_back(shared_->gradients, small_gradients_);
}

}  // namespace quench::distributed
