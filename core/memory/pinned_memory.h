#pragma once
// Caching allocator of pinned host memory for asynchronous copies of a device.
//
// A released block is reused once work queued on the current stream at release has completed, since a copy may still
// read it.

#include <cstddef>

#include "core/device/device.h"

namespace quench {

class PinnedMemory {
 public:
  // Pool of a device; process lifetime.
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
  State* state_;  // leaked: tensors of static lifetime may outlive it
};

}  // namespace quench
