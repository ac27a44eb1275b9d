#include "core/tensor/offloaded_tensor.h"

namespace quench {
namespace {

Backend& backend_of(Device device) {
  return backend(device.type);
}

}  // namespace

OffloadedTensor::OffloadedTensor(Tensor tensor, MemoryCategory category, Stream link, Tensor host)
    : device_(tensor.device()),
      shape_(tensor.shape()),
      dtype_(tensor.dtype()),
      category_(category),
      on_device_(std::move(tensor)),
      on_host_(std::move(host)) {
  if (!device_.is_meta() && !on_host_.defined()) on_host_ = Tensor::empty_pinned(shape_, dtype_, device_);
  sent_ = backend_of(device_).create_event(device_);
  returned_ = backend_of(device_).create_event(device_);
  send(link);
}

OffloadedTensor::OffloadedTensor(Tensor host, MemoryCategory category, Device device)
    : device_(device), shape_(host.shape()), dtype_(host.dtype()), category_(category), on_host_(std::move(host)) {
  sent_ = backend_of(device_).create_event(device_);
  returned_ = backend_of(device_).create_event(device_);
}

void OffloadedTensor::send(Stream link) {
  Backend& b = backend_of(device_);
  b.record(sent_, current_stream(device_));
  b.wait(link, sent_);
  if (on_host_.defined())
    b.copy(on_host_.raw_data(), Device{}, on_device_.raw_data(), device_, on_device_.nbytes(), link);
  b.record(sent_, link);
  fetched_ = false;
}

OffloadedTensor::~OffloadedTensor() {
  Backend& b = backend_of(device_);
  // A block in use by a copy must not be reused.
  try {
    if (on_device_.defined()) b.wait(current_stream(device_), fetched_ ? returned_ : sent_);
  } catch (const Error&) {
    // Device lost; the error is already propagating.
  }
  b.destroy_event(sent_);
  b.destroy_event(returned_);
}

void OffloadedTensor::drop_device_copy() {
  if (on_device_.defined()) backend_of(device_).wait(current_stream(device_), fetched_ ? returned_ : sent_);
  on_device_ = Tensor();
}

void OffloadedTensor::prefetch(Stream link) {
  if (on_device_.defined()) return;
  Backend& b = backend_of(device_);
  const MemoryScope scope(category_);
  Tensor block = Tensor::empty(shape_, dtype_, device_);
  // Work on the reused block completes first.
  b.record(returned_, current_stream(device_));
  b.wait(link, returned_);
  if (on_host_.defined()) b.copy(block.raw_data(), device_, on_host_.raw_data(), Device{}, block.nbytes(), link);
  b.record(returned_, link);
  on_device_ = std::move(block);
  fetched_ = true;
}

Tensor OffloadedTensor::get(Stream link) {
  prefetch(link);
  if (fetched_) backend_of(device_).wait(current_stream(device_), returned_);
  return on_device_;
}

}  // namespace quench
