#pragma once
// Memory that units take turns with: a buffer that is given back serves the next one of its size.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/tensor/tensor.h"

namespace quench::distributed {

class BufferPool {
 public:
  BufferPool(Device device, MemoryCategory category) : device_(device), category_(category) {}

  // Contiguous, uninitialised. It may be used by what is queued from now on, on the stream on which it was given back.
  [[nodiscard]] Tensor acquire(const Shape& shape, DType dtype);
  void give_back(const Tensor& buffer);
  // Returns unused buffers to the allocator.
  void trim() noexcept { free_.clear(); }

  [[nodiscard]] MemoryCategory category() const noexcept { return category_; }
  // Of all buffers made so far.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  Device device_;
  MemoryCategory category_;
  std::int64_t bytes_ = 0;
  std::map<std::pair<std::int64_t, DType>, std::vector<Tensor>> free_;  // by number of elements
};

}  // namespace quench::distributed
