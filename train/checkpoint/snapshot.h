#pragma once
// Consistent host copy of tensors, taken before the next optimizer update.
//
// GPU copies use a separate stream and overlap the next passes without blocking the host. Pinning takes about a second
// for several GB; reserve() does it in the background.

#include <cstdint>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "train/checkpoint/checkpoint_state.h"

namespace quench {

[[nodiscard]] std::int64_t snapshot_bytes(std::span<const CheckpointTensor> tensors);

// Not thread-safe except wait(). Host memory (category `other`) is reused.
class Snapshot {
 public:
  Snapshot() = default;
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Allocates pinned memory for GPU tensors in the background; no-op for others. take() waits for it.
  void reserve(std::span<const CheckpointTensor> tensors);
  // Starts copying the values as of the work queued on the current stream. The result is filled after wait(), valid
  // until the next call. Throws out_of_memory naming the bytes. Tensors must be contiguous; those not on the CPU must
  // share one device.
  std::span<const CheckpointTensor> take(std::span<const CheckpointTensor> tensors);
  // Orders later work on the current stream after the last take()'s copies.
  void before_change();
  // Thread-safe.
  void wait() const;
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }

 private:
  // Block sizes, in order.
  static std::vector<std::int64_t> blocks_for(std::span<const CheckpointTensor> tensors);
  void make_room(const std::vector<std::int64_t>& sizes, Device device);
  void join();

  std::vector<Tensor> blocks_;  // u8
  std::int64_t capacity_ = 0;
  std::thread maker_;
  std::vector<CheckpointTensor> copies_;
  std::optional<Stream> link_;  // copy stream
  Event copied_;
  std::vector<Tensor> sources_;  // alive until copied
};

}  // namespace quench
