#include "nn/optim/state_stream.h"

#include "nn/optim/state_offload.h"

namespace quench::nn {
namespace {

// A copy of 128 MiB of state in bf16 takes milliseconds, a copy's latency microseconds.
constexpr std::int64_t kBucketElements = std::int64_t{32} << 20;

// Elements of the largest shard.
std::int64_t shard_elements(const Parameter& parameter) {
  const Shape& shape = parameter.global_shape;
  if (shape.rank() == 0 || shape[0] == 0) return parameter.numel();
  return parameter.sharding.chunk(shape[0]) * (parameter.numel() / shape[0]);
}

}  // namespace

StateStream::StateStream(Optimizer& optimizer, double ratio, Device device)
    : device_(device),
      out_(backend(device.type).create_stream(device)),
      in_(backend(device.type).create_stream(device)) {
  const std::vector<ParameterState> states = optimizer.parameter_states();
  std::size_t left = count_within(states, ratio);
  for (std::size_t i = 0; i < states.size(); ++i) {
    ParameterEntries& own = parameters_.emplace_back(ParameterEntries{shard_elements(*optimizer.parameters()[i]), {}});
    for (Tensor* tensor : states[i].tensors) {
      if (tensor->nbytes() == 0 || left == 0) {
        const MemoryScope scope(MemoryCategory::optimizer);
        if (tensor->device() != device_) *tensor = tensor->to(device_);
        continue;
      }
      --left;
      bytes_ += static_cast<std::int64_t>(tensor->nbytes());
      if (tensor->device() != device_ || device_.is_cpu()) {
        own.entries.push_back({tensor, std::make_shared<OffloadedTensor>(*tensor, MemoryCategory::optimizer, device_)});
        continue;
      }
      own.entries.push_back({tensor, std::make_shared<OffloadedTensor>(*tensor, MemoryCategory::optimizer, out_)});
      const Entry& entry = own.entries.back();
      *tensor = entry.tensor->host();
      entry.tensor->drop_device_copy();
    }
  }
}

StateStream::~StateStream() {
  parameters_.clear();
  backend(device_.type).destroy_stream(out_);
  backend(device_.type).destroy_stream(in_);
}

std::size_t StateStream::bucket_end(std::size_t begin, std::size_t limit) const {
  std::size_t end = begin;
  for (std::int64_t elements = 0; end < limit && elements < kBucketElements; ++end)
    elements += parameters_[end].elements;
  return end;
}

template <class Work>
void StateStream::for_each(ParameterRange part, const Work& work) {
  for (std::size_t i = part.begin; i < part.end; ++i)
    for (Entry& entry : parameters_[i].entries) work(entry);
}

void StateStream::drop_sent() {
  for_each(std::exchange(sent_, {}), [](Entry& entry) { entry.tensor->drop_device_copy(); });
}

void StateStream::update_one(ParameterRange part, ParameterRange next,
                             const std::function<void(ParameterRange)>& step) {
  for_each(part, [this](Entry& entry) { *entry.place = entry.tensor->get(in_); });
  // The next bucket reuses this memory.
  drop_sent();
  for_each(next, [this](Entry& entry) { entry.tensor->prefetch(in_); });
  step(part);
  for_each(part, [this](Entry& entry) {
    *entry.place = entry.tensor->host();
    entry.tensor->send(out_);
  });
  sent_ = part;
}

void StateStream::update(ParameterRange part, const std::function<void(ParameterRange)>& step) {
  for (std::size_t begin = part.begin; begin < part.end;) {
    const std::size_t end = bucket_end(begin, part.end);
    update_one({begin, end}, {end, bucket_end(end, parameters_.size())}, step);
    begin = end;
  }
  drop_sent();
}

void StateStream::finish_copies() {
  backend(device_.type).synchronize(out_);
}

}  // namespace quench::nn
