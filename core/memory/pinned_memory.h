#pragma once
// Caching allocator of pinned host memory.
//
// A released block is reused once work queued on the current stream at release has completed.

#include <cstddef>

#include "core/device/device.h"

namespace quench {

class PinnedMemory {
 public:
  // Process lifetime.
  static PinnedMemory& of(Device device);

  // 64-byte aligned. Throws out_of_memory.
  void* allocate(std::size_t bytes);
  void release(void* pointer) noexcept;

  explicit PinnedMemory(Device device);
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

 private:
  struct State;
  Device device_;
  State* state_;  // leaked: static tensors may outlive it
};

}  // namespace quench
