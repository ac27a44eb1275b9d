#pragma once
// Physical memory mapped into one reserved address range (CUDA virtual memory management). No peer access, no IPC
// handles.

#include <cstddef>
#include <memory>

#include "core/device/device.h"

namespace quench::cuda {

class GrowingMemory {
 public:
  // Lives until exit.
  static GrowingMemory& of(Device device);

  // Multiples of 2 MiB, contiguous with the previous append; nullptr if out of memory or unsupported.
  void* append(std::size_t bytes);
  // Unmaps a whole append once the device is idle. False for foreign pointers.
  bool remove(void* pointer, std::size_t bytes) noexcept;

  explicit GrowingMemory(Device device);
  ~GrowingMemory();
  GrowingMemory(const GrowingMemory&) = delete;
  GrowingMemory& operator=(const GrowingMemory&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quench::cuda
