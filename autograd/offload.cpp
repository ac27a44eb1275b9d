#include "autograd/offload.h"

#include <utility>

namespace quench::autograd {
namespace {

Backend& backend_of(Device device) {
  return backend(device.type);
}

// Tensors on their way out whose memory is not yet given back: more let a link that is slower than a layer catch up
// during others, and cost their size.
constexpr std::size_t kInFlight = 2;

}  // namespace

OffloadedTensor::OffloadedTensor(Tensor tensor, Stream link)
    : device_(tensor.device()), shape_(tensor.shape()), dtype_(tensor.dtype()), on_device_(std::move(tensor)) {
  Backend& b = backend_of(device_);
  sent_ = b.create_event(device_);
  returned_ = b.create_event(device_);
  if (!device_.is_meta()) on_host_ = Tensor::empty_pinned(shape_, dtype_, device_);
  b.record(sent_, current_stream(device_));
  b.wait(link, sent_);
  if (on_host_.defined())
    b.copy(on_host_.raw_data(), Device{}, on_device_.raw_data(), device_, on_device_.nbytes(), link);
  b.record(sent_, link);
}

OffloadedTensor::~OffloadedTensor() {
  Backend& b = backend_of(device_);
  // A block that a copy still uses may not be handed out again.
  try {
    if (on_device_.defined()) b.wait(current_stream(device_), fetched_ ? returned_ : sent_);
  } catch (const Error&) {
    // The device is lost, and the error that says so is on its way.
  }
  b.destroy_event(sent_);
  b.destroy_event(returned_);
}

void OffloadedTensor::drop_device_copy() {
  backend_of(device_).wait(current_stream(device_), sent_);
  on_device_ = Tensor();
}

void OffloadedTensor::prefetch(Stream link) {
  if (on_device_.defined()) return;
  Backend& b = backend_of(device_);
  const MemoryScope scope(MemoryCategory::activations);
  on_device_ = Tensor::empty(shape_, dtype_, device_);
  // What used the block before must be done with it.
  b.record(returned_, current_stream(device_));
  b.wait(link, returned_);
  if (on_host_.defined())
    b.copy(on_device_.raw_data(), device_, on_host_.raw_data(), Device{}, on_device_.nbytes(), link);
  b.record(returned_, link);
  fetched_ = true;
}

Tensor OffloadedTensor::get(Stream link) {
  prefetch(link);
  if (fetched_) backend_of(device_).wait(current_stream(device_), returned_);
  return on_device_;
}

ActivationOffloader::ActivationOffloader(Device device, ActivationPlan plan)
    : device_(device),
      plan_(std::move(plan)),
      out_(backend_of(device).create_stream(device)),
      in_(backend_of(device).create_stream(device)),
      sent_(static_cast<std::size_t>(plan_.layers())) {}

ActivationOffloader::~ActivationOffloader() {
  leaving_.clear();
  backend_of(device_).destroy_stream(out_);
  backend_of(device_).destroy_stream(in_);
}

void ActivationOffloader::begin_forward(std::int64_t layer) {
  layer_ = layer;
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
  leaving_.push_back(std::make_shared<OffloadedTensor>(tensor, out_));
  sent_[static_cast<std::size_t>(layer_)].push_back(leaving_.back());
  return leaving_.back();
}

}  // namespace quench::autograd
