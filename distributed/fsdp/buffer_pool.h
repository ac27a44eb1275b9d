#pragma once
// Buffer pool of FSDP units: a released buffer is reused by the next request of equal size and dtype.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/tensor/tensor.h"

namespace quench::distributed {

class BufferPool {
 public:
  BufferPool(Device device, MemoryCategory category) : device_(device), category_(category) {}

  // Contiguous, uninitialised. Valid for work queued from now on, on the stream of its release.
  [[nodiscard]] Tensor acquire(const Shape& shape, DType dtype);
  void give_back(const Tensor& buffer);
  // Returns unused buffers to the allocator.
  void trim() noexcept { free_.clear(); }

  [[nodiscard]] MemoryCategory category() const noexcept { return category_; }
  // Total of all buffers allocated so far.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  Device device_;
  MemoryCategory category_;
  std::int64_t bytes_ = 0;
  std::map<std::pair<std::int64_t, DType>, std::vector<Tensor>> free_;  // key: number of elements, dtype
};

}  // namespace quench::distributed
