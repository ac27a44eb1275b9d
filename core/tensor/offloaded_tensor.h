#pragma once
// Tensor offloaded to pinned host memory until it is needed.

#include <cstdint>

#include "core/tensor/tensor.h"

namespace quench {

// Offload and prefetch of one tensor. On the meta device only memory is accounted for.
class OffloadedTensor {
 public:
  // Offloads after work queued on the current stream; the tensor must not be written any more. category: memory of the
  // prefetched tensor. host: previous host buffer (host()) if defined, reusable at once because copies are ordered on
  // the device (the pool would wait for the host to see them complete).
  OffloadedTensor(Tensor tensor, MemoryCategory category, Stream link, Tensor host = {});
  ~OffloadedTensor();
  OffloadedTensor(const OffloadedTensor&) = delete;
  OffloadedTensor& operator=(const OffloadedTensor&) = delete;

  // Frees the device copy; the current stream waits until it has been sent.
  void drop_device_copy();
  // Starts the host-to-device copy.
  void prefetch(Stream link);
  // Device tensor, for work queued on the current stream from now on.
  [[nodiscard]] Tensor get(Stream link);
  // Host buffer; undefined on the meta device.
  [[nodiscard]] const Tensor& host() const noexcept { return on_host_; }
  [[nodiscard]] std::int64_t nbytes() const { return shape_.numel() * byte_size(dtype_); }

 private:
  Device device_;
  Shape shape_;
  DType dtype_;
  MemoryCategory category_;
  Tensor on_device_;
  Tensor on_host_;
  Event sent_;
  Event returned_;
  bool fetched_ = false;
};

}  // namespace quench
