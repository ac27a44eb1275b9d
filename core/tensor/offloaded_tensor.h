#pragma once
// A tensor of a device that waits in page-locked host memory until it is needed again.

#include <cstdint>

#include "core/tensor/tensor.h"

namespace quench {

// One tensor on its way out and back. Values on the meta device are never copied; its memory is.
class OffloadedTensor {
 public:
  // Sends a tensor that nobody writes to any more, after the work queued on the current stream. `category` is of the
  // memory it comes back to. `host`, where defined, is the previous host buffer of the tensor (host()). It is reusable
  // at once, because copies are ordered on the device; the pool would hold it back until the host has seen them end.
  OffloadedTensor(Tensor tensor, MemoryCategory category, Stream link, Tensor host = {});
  ~OffloadedTensor();
  OffloadedTensor(const OffloadedTensor&) = delete;
  OffloadedTensor& operator=(const OffloadedTensor&) = delete;

  // Lets the device's copy go; the current stream waits until it has been sent.
  void drop_device_copy();
  // Starts the way back.
  void prefetch(Stream link);
  // The tensor on the device, for work queued on the current stream from now on.
  [[nodiscard]] Tensor get(Stream link);
  // Where it waits; undefined for the meta device.
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
