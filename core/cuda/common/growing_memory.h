#pragma once
// Device memory that grows at its end: physical memory mapped piece by piece into one range of addresses (the driver's
// virtual memory management). Only its own device may use it: other devices take copies, and it has no IPC handles.

#include <cstddef>
#include <memory>

#include "core/device/device.h"

namespace quench::cuda {

class GrowingMemory {
 public:
  // Of a device; lives until the program ends.
  static GrowingMemory& of(Device device);

  // `bytes`, a multiple of 2 MiB, right behind the last ones; nullptr when out of memory, or where the driver or the
  // device has no virtual memory management.
  void* append(std::size_t bytes);
  // Unmaps a whole piece, after all work of the device is done. False if `pointer` did not come from append().
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
