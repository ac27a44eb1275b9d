#pragma once
// Tensor offloaded to pinned host memory.

#include <cstdint>

#include "core/tensor/tensor.h"

namespace quench {

class OffloadedTensor {
 public:
  // Offloads after work queued on the current stream; the tensor must not be written any more. category: of the
  // prefetched tensor. host: previous host(), optional, reusable at once because copies are ordered on the device.
  OffloadedTensor(Tensor tensor, MemoryCategory category, Stream link, Tensor host = {});
  // Without a device copy. host: the values, pinned for copies with `device`.
  OffloadedTensor(Tensor host, MemoryCategory category, Device device);
  ~OffloadedTensor();
  OffloadedTensor(const OffloadedTensor&) = delete;
  OffloadedTensor& operator=(const OffloadedTensor&) = delete;

  // Copies the changed device copy to host() after work queued on the current stream.
  void send(Stream link);
  // Frees the device copy, if any, once it is sent or prefetched, in stream order.
  void drop_device_copy();
  void prefetch(Stream link);
  // For work queued on the current stream from now on.
  [[nodiscard]] Tensor get(Stream link);
  // Undefined on the meta device.
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
