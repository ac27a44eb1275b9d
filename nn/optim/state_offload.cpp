#include "nn/optim/state_offload.h"

#include <algorithm>

namespace quench::nn {

std::size_t count_within(std::span<const ParameterState> state, double ratio) {
  std::int64_t all = 0, taken = 0;
  for (const ParameterState& parameter : state)
    for (const Tensor* tensor : parameter.tensors) all += static_cast<std::int64_t>(tensor->nbytes());
  std::size_t count = 0;
  for (const ParameterState& parameter : state)
    for (const Tensor* tensor : parameter.tensors) {
      const auto size = static_cast<std::int64_t>(tensor->nbytes());
      if (size == 0 || static_cast<double>(taken) >= ratio * static_cast<double>(all)) continue;
      taken += size;
      ++count;
    }
  return count;
}

StateOffloader::StateOffloader(std::span<const ParameterState> state, double ratio, Device device, std::int64_t layers)
    : device_(device), layers_(layers) {
  const std::size_t count = count_within(state, ratio);
  for (const ParameterState& parameter : state)
    for (Tensor* tensor : parameter.tensors) {
      if (tensor->nbytes() == 0 || entries_.size() == count) continue;
      bytes_ += static_cast<std::int64_t>(tensor->nbytes());
      entries_.push_back({tensor, bytes_});
    }
  out_ = backend(device.type).create_stream(device);
  in_ = backend(device.type).create_stream(device);
}

StateOffloader::~StateOffloader() {
  restore_quietly();
  entries_.clear();
  backend(device_.type).destroy_stream(out_);
  backend(device_.type).destroy_stream(in_);
}

void StateOffloader::send_all() {
  sent_ = true;
  for (Entry& entry : entries_) {
    entry.away = std::make_shared<OffloadedTensor>(*entry.place, MemoryCategory::optimizer, out_, entry.host);
    entry.host = entry.away->host();
    *entry.place = Tensor();
  }
}

void StateOffloader::drop(std::int64_t slot, std::int64_t slots) {
  for (; dropped_ < entries_.size() && entries_[dropped_].end * slots <= bytes_ * slot; ++dropped_)
    entries_[dropped_].away->drop_device_copy();
}

void StateOffloader::fetch(std::int64_t slot, std::int64_t slots) {
  for (; fetched_ < entries_.size() && entries_[fetched_].end * slots <= bytes_ * slot; ++fetched_)
    entries_[fetched_].away->prefetch(in_);
}

void StateOffloader::restore() {
  if (!sent_) return;
  for (Entry& entry : entries_) {
    if (!entry.away) continue;
    *entry.place = entry.away->get(in_);
    entry.away.reset();
  }
  dropped_ = fetched_ = 0;
  sent_ = false;
}

void StateOffloader::restore_quietly() noexcept {
  try {
    restore();
  } catch (const Error&) {
    // That error is already propagating and ends the run.
  }
}

StateOffloader::Step::Step(StateOffloader* offloader) : offloader_(offloader) {}

const UnitHooks* StateOffloader::Step::hooks(bool first, bool last) {
  if (offloader_ == nullptr) return nullptr;
  StateOffloader& o = *offloader_;
  o.hooks_ = {};
  const std::int64_t layers = o.layers_, slots = last ? layers : 2 * layers;
  if (first) {
    o.send_all();
    o.hooks_.before_forward = [&o, slots](std::int64_t layer) { o.drop(layer, slots); };
    // Peak memory is in the head, after the last layer.
    o.hooks_.after_forward = [&o, slots, layers](std::int64_t layer) {
      if (layer == layers - 1) o.drop(layers, slots);
    };
  }
  if (last)
    o.hooks_.before_backward = [&o, layers](std::int64_t layer) { o.fetch(layers - layer, layers); };
  else if (first)
    o.hooks_.before_backward = [&o, layers, slots](std::int64_t layer) { o.drop(2 * layers - layer, slots); };
  return first || last ? &o.hooks_ : nullptr;
}

void StateOffloader::Step::end() {
  if (offloader_ != nullptr) offloader_->restore();
  offloader_ = nullptr;
}

StateOffloader::Step::~Step() {
  if (offloader_ != nullptr) offloader_->restore_quietly();
}

}  // namespace quench::nn
