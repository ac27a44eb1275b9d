#pragma once
// Growable device memory: physical memory mapped into one reserved address range (CUDA virtual memory management). No
// peer access, no IPC handles.

#include <cstddef>
#include <memory>

#include "core/device/device.h"

namespace quench::cuda {

class GrowingMemory {
 public:
  // Per device; lives until exit.
  static GrowingMemory& of(Device device);

  // Appends `bytes`, a multiple of 2 MiB, contiguous with the previous append; nullptr when out of memory or not
  // supported.
  void* append(std::size_t bytes);
  // Unmaps a whole append once the device is idle. False if `pointer` did not come from append().
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
