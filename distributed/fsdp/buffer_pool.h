#pragma once
// Buffer pool of FSDP units: reuse by equal size and dtype.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/tensor/tensor.h"

namespace quench::distributed {

class BufferPool {
 public:
  BufferPool(Device device, MemoryCategory category) : device_(device), category_(category) {}

  // Contiguous, uninitialised; for work on the stream of its release.
  [[nodiscard]] Tensor acquire(const Shape& shape, DType dtype);
  void give_back(const Tensor& buffer);
  void trim() noexcept { free_.clear(); }

  [[nodiscard]] MemoryCategory category() const noexcept { return category_; }
  // Total allocated so far.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  Device device_;
  MemoryCategory category_;
  std::int64_t bytes_ = 0;
  std::map<std::pair<std::int64_t, DType>, std::vector<Tensor>> free_;  // key: elements, dtype
};

}  // namespace quench::distributed
