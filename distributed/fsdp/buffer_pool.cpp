#include "distributed/fsdp/buffer_pool.h"

namespace quench::distributed {

Tensor BufferPool::acquire(const Shape& shape, DType dtype) {
  std::vector<Tensor>& free = free_[{shape.numel(), dtype}];
  if (!free.empty()) {
    const Tensor buffer = std::move(free.back());
    free.pop_back();
    return buffer.view(shape);
  }
  const MemoryScope scope(category_);
  Tensor buffer = Tensor::empty(shape, dtype, device_);
  bytes_ += static_cast<std::int64_t>(buffer.nbytes());
  return buffer;
}

void BufferPool::give_back(const Tensor& buffer) {
  free_[{buffer.numel(), buffer.dtype()}].push_back(buffer);
}

}  // namespace quench::distributed
