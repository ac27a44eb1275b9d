#pragma once
// A consistent host copy of tensors, taken before the optimizer changes them again.

#include <cstdint>
#include <span>
#include <vector>

#include "train/checkpoint/checkpoint_state.h"

namespace quench {

// Host bytes that a snapshot of these tensors occupies.
[[nodiscard]] std::int64_t snapshot_bytes(std::span<const CheckpointTensor> tensors);

// Copies into one host buffer (memory category `other`), which is kept for the next snapshot.
class Snapshot {
 public:
  // The copies stay valid until the next call. Throws out_of_memory naming the bytes; tensors must be contiguous.
  std::span<const CheckpointTensor> take(std::span<const CheckpointTensor> tensors);
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }

 private:
  Tensor buffer_;
  std::int64_t capacity_ = 0;
  std::vector<CheckpointTensor> copies_;
};

}  // namespace quench
