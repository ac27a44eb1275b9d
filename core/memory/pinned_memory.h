#pragma once
// Page-locked host memory of a device: copies between it and the device run while the host goes on.
//
// Blocks are kept and reused. A released block may still be the source of a copy in flight, so it is handed out again
// only when the work queued on the device's current stream at the time of release is done.

#include <cstddef>

#include "core/device/device.h"

namespace quench {

class PinnedMemory {
 public:
  // The pool of a device; lives until the program ends.
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
  State* state_;  // never freed: tensors with static lifetime may be released after it
};

}  // namespace quench
