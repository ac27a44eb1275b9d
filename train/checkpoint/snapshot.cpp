#include "train/checkpoint/snapshot.h"

namespace quench {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t padded(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::int64_t snapshot_bytes(std::span<const CheckpointTensor> tensors) {
  std::size_t total = 0;
  for (const CheckpointTensor& tensor : tensors) total += padded(tensor.data.nbytes());
  return static_cast<std::int64_t>(total);
}

std::span<const CheckpointTensor> Snapshot::take(std::span<const CheckpointTensor> tensors) {
  copies_.clear();
  const std::int64_t needed = snapshot_bytes(tensors);
  if (needed > capacity_) {
    const MemoryScope scope(MemoryCategory::other);
    buffer_ = Tensor();
    capacity_ = 0;
    buffer_ = Tensor::empty({needed}, DType::u8);
    capacity_ = needed;
  }
  auto* free = static_cast<std::byte*>(buffer_.raw_data());
  copies_.reserve(tensors.size());
  for (const CheckpointTensor& tensor : tensors) {
    QUENCH_CHECK(tensor.data.defined() && tensor.data.is_contiguous(),
                 "checkpoint tensor '{}' ({}) must be defined and contiguous", tensor.name, tensor.data.describe());
    Tensor copy = Tensor::from_host(free, tensor.data.shape(), tensor.data.dtype());
    copy.copy_from(tensor.data);
    copies_.push_back({tensor.name, tensor.global_shape, tensor.slice, std::move(copy)});
    free += padded(tensor.data.nbytes());
  }
  return copies_;
}

}  // namespace quench
