#include "nn/optim/state_offload.h"

#include <algorithm>

namespace quench::nn {

StateOffloader::StateOffloader(std::span<const ParameterState> state, double ratio, double late_ratio, Device device,
                               std::int64_t layers)
    : device_(device), layers_(layers) {
  double all = 0;
  for (const ParameterState& parameter : state) {
    gradient_bytes_.push_back(parameter.gradient_bytes);
    for (const Tensor* tensor : parameter.tensors) all += static_cast<double>(tensor->nbytes());
  }
  for (std::size_t i = 0; i < state.size(); ++i) {
    for (Tensor* tensor : state[i].tensors) {
      const auto size = static_cast<std::int64_t>(tensor->nbytes());
      // The last one that begins within the share goes whole.
      if (size == 0 || static_cast<double>(bytes_) >= ratio * all) continue;
      bytes_ += size;
      entries_.push_back({tensor, i, size, bytes_});
    }
  }
  prompt_bytes_ = bytes_;
  first_late_ = entries_.size();
  while (first_late_ > 0 && static_cast<double>(late_bytes()) < late_ratio * static_cast<double>(bytes_)) {
    // A parameter can be updated when all of its state is there.
    const std::size_t parameter = entries_[first_late_ - 1].parameter;
    for (; first_late_ > 0 && entries_[first_late_ - 1].parameter == parameter; --first_late_)
      prompt_bytes_ -= entries_[first_late_ - 1].size;
    late_ = {parameter, entries_.back().parameter + 1};
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
  for (; fetched_ < first_late_ && entries_[fetched_].end * slots <= prompt_bytes_ * slot; ++fetched_)
    entries_[fetched_].away->prefetch(in_);
}

std::int64_t StateOffloader::fetch_into(std::int64_t room) {
  for (; sent_ && fetched_ < entries_.size() && entries_[fetched_].size <= room; ++fetched_) {
    entries_[fetched_].away->prefetch(in_);
    room -= entries_[fetched_].size;
  }
  return room;
}

void StateOffloader::restore(std::size_t end) {
  if (!sent_) return;
  for (; restored_ < end; ++restored_) {
    Entry& entry = entries_[restored_];
    if (!entry.away) continue;
    *entry.place = entry.away->get(in_);
    entry.away.reset();
  }
  fetched_ = std::max(fetched_, restored_);
  if (restored_ < entries_.size()) return;
  dropped_ = fetched_ = restored_ = 0;
  sent_ = false;
}

void StateOffloader::restore_quietly() noexcept {
  try {
    bring_back();
  } catch (const Error&) {
    // The device is lost or out of memory, and the error that says so is on its way; the run ends with it.
  }
}

void StateOffloader::update(const std::function<void(ParameterRange part)>& apply) {
  const std::size_t count = gradient_bytes_.size();
  restore(first_late_);
  if (!sent_) return apply({0, count});
  const struct Guard {
    StateOffloader& offloader;
    ~Guard() { offloader.restore_quietly(); }
  } guard{*this};
  std::int64_t room = 0;  // that gradients have left, less what returned into it
  for (const ParameterRange early : {ParameterRange{late_.end, count}, ParameterRange{0, late_.begin}}) {
    for (std::size_t begin = early.begin, end = begin; begin < early.end; begin = end) {
      // Small parts first, so that the link begins early; all the rest when it has all its work.
      const bool all = fetched_ == entries_.size();
      for (; end < early.end && (all || room < entries_[fetched_].size); ++end) room += gradient_bytes_[end];
      apply({begin, end});
      room = fetch_into(room);
    }
  }
  for (std::size_t parameter = late_.begin, last = first_late_; parameter < late_.end; ++parameter) {
    for (; last < entries_.size() && entries_[last].parameter == parameter; ++last)
      if (last >= fetched_) room -= entries_[last].size;  // it must come, with or without room
    restore(last);
    apply({parameter, parameter + 1});
    room = fetch_into(room + gradient_bytes_[parameter]);
  }
}

StateOffloader::Step::Step(StateOffloader* offloader) : offloader_(offloader) {
  if (offloader != nullptr) offloader->bring_back();
}

const UnitHooks* StateOffloader::Step::hooks(bool first, bool last) {
  if (offloader_ == nullptr) return nullptr;
  StateOffloader& o = *offloader_;
  o.hooks_ = {};
  const std::int64_t layers = o.layers_, slots = last ? layers : 2 * layers;
  if (first) {
    o.send_all();
    o.hooks_.before_forward = [&o, slots](std::int64_t layer) { o.drop(layer, slots); };
    // What follows the last layer, the head, is where memory is shortest.
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
  if (offloader_ != nullptr) offloader_->restore(offloader_->first_late_);
  offloader_ = nullptr;
}

StateOffloader::Step::~Step() {
  if (offloader_ != nullptr) offloader_->restore_quietly();
}

}  // namespace quench::nn
