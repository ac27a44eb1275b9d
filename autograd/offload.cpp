#include "autograd/offload.h"

#include <algorithm>
#include <utility>

namespace quench::autograd {
namespace {

Backend& backend_of(Device device) {
  return backend(device.type);
}

// Maximum tensors in flight, with device memory not yet freed.
constexpr std::size_t kInFlight = 2;
// Layers after which a copy is expected to be complete, and its device memory is freed; else computation waits for it.
// Over 50 GB/s it takes about as long as two layers of width 4,096 in bf16, three in float8; narrower ones more.
constexpr std::int64_t kCopyLayers = 5;

}  // namespace

ActivationOffloader::ActivationOffloader(Device device, ActivationPolicy plan)
    : device_(device),
      plan_(std::move(plan)),
      out_(backend_of(device).create_stream(device)),
      in_(backend_of(device).create_stream(device)),
      sent_(static_cast<std::size_t>(plan_.layers())),
      slots_(static_cast<std::size_t>(plan_.layers())) {}

ActivationOffloader::~ActivationOffloader() {
  leaving_.clear();
  backend_of(device_).destroy_stream(out_);
  backend_of(device_).destroy_stream(in_);
}

void ActivationOffloader::begin_forward(std::int64_t layer) {
  layer_ = layer;
  const auto is_copied = [&](const std::shared_ptr<OffloadedTensor>& tensor) {
    for (std::int64_t sender = 0; sender <= layer - kCopyLayers; ++sender)
      for (const auto& sent : sent_[static_cast<std::size_t>(sender)])
        if (sent.lock() == tensor) return true;
    return false;
  };
  while (!leaving_.empty() && is_copied(leaving_.front())) let_go(leaving_.size() - 1);
  if (wanted()) sent_[static_cast<std::size_t>(layer)].clear();
}

void ActivationOffloader::let_go(std::size_t keep) {
  for (; leaving_.size() > keep; leaving_.pop_front()) leaving_.front()->drop_device_copy();
}

void ActivationOffloader::end_forward() {
  layer_ = -1;
  let_go(0);
}

void ActivationOffloader::begin_backward(std::int64_t layer) {
  if (layer < 1 || layer >= plan_.layers()) return;
  for (const auto& tensor : sent_[static_cast<std::size_t>(layer - 1)])
    if (const auto alive = tensor.lock()) alive->prefetch(in_);
}

std::shared_ptr<OffloadedTensor> ActivationOffloader::send(const Tensor& tensor) {
  let_go(kInFlight - 1);
  Slot& slot = free_slot();
  if (slot.host.defined() && (slot.host.shape() != tensor.shape() || slot.host.dtype() != tensor.dtype()))
    slot.host = {};
  leaving_.push_back(
      std::make_shared<OffloadedTensor>(tensor, MemoryCategory::activations, out_, std::move(slot.host)));
  slot = {leaving_.back()->host(), static_cast<std::int64_t>(tensor.nbytes()), leaving_.back()};
  sent_[static_cast<std::size_t>(layer_)].push_back(leaving_.back());
  return leaving_.back();
}

ActivationOffloader::Slot& ActivationOffloader::free_slot() {
  std::vector<Slot>& slots = slots_[static_cast<std::size_t>(layer_)];
  const auto free = std::ranges::find_if(slots, [](const Slot& slot) { return slot.user.expired(); });
  return free != slots.end() ? *free : slots.emplace_back();
}

std::int64_t ActivationOffloader::host_bytes() const noexcept {
  std::int64_t bytes = 0;
  for (const std::vector<Slot>& slots : slots_)
    for (const Slot& slot : slots) bytes += slot.bytes;
  return bytes;
}

}  // namespace quench::autograd
