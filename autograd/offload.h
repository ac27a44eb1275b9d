#pragma once
// Saved activations that wait for the backward pass in host memory.
//
// The largest saved tensor of some layers is copied to page-locked host memory while later layers compute, and copied
// back one layer before it is needed, on streams of their own. The layers (autograd/activation_policy.h) are spread
// over the model, so that the copies out have the whole forward pass. The GPU waits only where the link is slower than
// the forward pass.

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

  // Around the layers of one forward and backward pass, in order.
  void begin_forward(std::int64_t layer);
  void end_forward();  // of all layers: what has been sent leaves the device
  void begin_backward(std::int64_t layer);
  // Whether the layer that runs forward now is offloaded.
  [[nodiscard]] bool wanted() const noexcept { return plan_.of(layer_) == SwigluInputPolicy::offload; }
  // Sends a tensor of the current layer; nobody may write to it any more.
  [[nodiscard]] std::shared_ptr<OffloadedTensor> send(const Tensor& tensor);
  [[nodiscard]] Tensor get(OffloadedTensor& tensor) const { return tensor.get(in_); }

 private:
  void let_go(std::size_t keep);

  Device device_;
  ActivationPolicy plan_;
  std::int64_t layer_ = -1;
  Stream out_, in_;
  std::vector<std::vector<std::weak_ptr<OffloadedTensor>>> sent_;  // by layer
  std::deque<std::shared_ptr<OffloadedTensor>> leaving_;           // still on the device, oldest first
};

}  // namespace quench::autograd
