#pragma once
// Activation offload: the large saved tensors (Saved::large) of selected layers are copied to pinned host memory during
// later layers, and prefetched one layer ahead in the backward pass, on separate streams.

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

 private:
  void let_go(std::size_t keep);

  Device device_;
  ActivationPolicy plan_;
  std::int64_t layer_ = -1;
  Stream out_, in_;
  std::vector<std::vector<std::weak_ptr<OffloadedTensor>>> sent_;  // by layer
  std::deque<std::shared_ptr<OffloadedTensor>> leaving_;           // oldest first
};

}  // namespace quench::autograd
