#pragma once
// Pinned host memory.

#include <cstddef>

#include "core/device/device.h"

namespace quench::cuda {

// For asynchronous copies of `device`, never freed; nullptr if exhausted. Large requests: huge pages of the calling
// thread's NUMA node, zeroed by several threads, then registered; cudaMallocHost zeroes small pages with one.
[[nodiscard]] void* allocate_pinned(Device device, std::size_t bytes);

}  // namespace quench::cuda
