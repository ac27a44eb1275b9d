#include "core/tensor/host_copy.h"

namespace quench {

HostCopy::HostCopy(const Tensor& source)
    : on_host_(Tensor::empty_pinned(source.shape(), source.dtype(), source.device())) {
  QUENCH_CHECK(source.is_contiguous(), "HostCopy: {} is not contiguous", source.describe());
  const Device device = source.device();
  if (source.nbytes() == 0 || device.is_meta()) return;
  Backend& owner = backend(device.type);
  const Stream stream = current_stream(device);
  done_ = owner.create_event(device);
  owner.copy(on_host_.raw_data(), Device{}, source.raw_data(), device, source.nbytes(), stream);
  owner.record(*done_, stream);
}

HostCopy::~HostCopy() {
  if (done_) backend(done_->device.type).destroy_event(*done_);
}

const Tensor& HostCopy::get() const {
  if (done_) backend(done_->device.type).synchronize(*done_);
  return on_host_;
}

}  // namespace quench
