#pragma once
// Activation offload: the large saved tensors (Saved::large) of selected layers, or under full recompute their inputs
// (autograd/recompute.h), are copied to pinned host memory while layers compute, and prefetched one layer ahead in the
// backward pass, on separate streams. Values are the same bits.

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "autograd/activation_policy.h"
#include "core/tensor/offloaded_tensor.h"

namespace quench::autograd {

class ActivationOffloader {
 public:
  ActivationOffloader(Device device, ActivationPolicy plan);
  ~ActivationOffloader();
  ActivationOffloader(const ActivationOffloader&) = delete;
  ActivationOffloader& operator=(const ActivationOffloader&) = delete;

  // Calls around the layers of one forward and backward pass, in order.
  void begin_forward(std::int64_t layer);
  void end_forward();  // frees device memory of sent tensors
  void begin_backward(std::int64_t layer);
  [[nodiscard]] bool wanted() const noexcept { return plan_.of(layer_) == SavePolicy::offload; }
  // The tensor must not be written any more.
  [[nodiscard]] std::shared_ptr<OffloadedTensor> send(const Tensor& tensor);
  [[nodiscard]] Tensor get(OffloadedTensor& tensor) const { return tensor.get(in_); }

  // Host memory of the sent tensors, which later passes reuse: copies are ordered on the device.
  [[nodiscard]] std::int64_t host_bytes() const noexcept;

 private:
  // Host memory of one tensor of a layer.
  struct Slot {
    Tensor host;  // undefined on the meta device
    std::int64_t bytes = 0;
    std::weak_ptr<OffloadedTensor> user;
  };

  void let_go(std::size_t keep);
  // Slot of the present layer without a user.
  [[nodiscard]] Slot& free_slot();

  Device device_;
  ActivationPolicy plan_;
  std::int64_t layer_ = -1;
  Stream out_, in_;
  std::vector<std::vector<std::weak_ptr<OffloadedTensor>>> sent_;  // by layer
  std::vector<std::vector<Slot>> slots_;                           // by layer
  std::deque<std::shared_ptr<OffloadedTensor>> leaving_;           // oldest first
};

}  // namespace quench::autograd
