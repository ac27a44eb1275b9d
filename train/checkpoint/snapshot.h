#pragma once
// A consistent host copy of tensors, taken before the optimizer changes them again.
//
// Copies of a GPU's tensors are queued on a stream of their own and run beside the next step's forward and backward
// pass: the host waits for none of them. Their host memory is pinned, which takes a second for some gigabytes, so
// that reserve() has it made in the background before the first snapshot.

#include <cstdint>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "train/checkpoint/checkpoint_state.h"

namespace quench {

// Host bytes that a snapshot of these tensors occupies.
[[nodiscard]] std::int64_t snapshot_bytes(std::span<const CheckpointTensor> tensors);

// Not thread-safe but for wait(). The host memory (category `other`) is kept for the next snapshot.
class Snapshot {
 public:
  Snapshot() = default;
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Makes room for a snapshot of a GPU's tensors in the background; nothing to do for others. take() waits for it.
  void reserve(std::span<const CheckpointTensor> tensors);
  // Begins to copy the values that the tensors have after the work queued on the current stream. The copies are valid
  // until the next call, and hold the values once wait() has returned. Throws out_of_memory naming the bytes; tensors
  // must be contiguous, and those that are not on the CPU on one device.
  std::span<const CheckpointTensor> take(std::span<const CheckpointTensor> tensors);
  // Work queued on the current stream from here on may change the tensors of the last take().
  void before_change();
  // Until the copies hold the values. Any thread.
  void wait() const;
  // Bytes held.
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }

 private:
  // Sizes of the blocks that these tensors are laid into, in order.
  static std::vector<std::int64_t> blocks_for(std::span<const CheckpointTensor> tensors);
  void make_room(const std::vector<std::int64_t>& sizes, Device device);
  void join();

  std::vector<Tensor> blocks_;  // u8
  std::int64_t capacity_ = 0;
  std::thread maker_;
  std::vector<CheckpointTensor> copies_;
  std::optional<Stream> link_;  // of the tensors' device, where copies are asynchronous
  Event copied_;
  std::vector<Tensor> sources_;  // that the device may still read
};

}  // namespace quench
