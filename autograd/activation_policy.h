#pragma once
// What becomes of each layer's largest saved tensor, the input of swiglu, between the forward and the backward pass.

#include <algorithm>
#include <cstdint>
#include <vector>

namespace quench::autograd {

enum class SwigluInputPolicy {
  keep,       // on the device
  offload,    // in host memory (autograd/offload.h)
  recompute,  // nowhere: the product that made it runs again; takes effect under selective recompute
};

// Decides it layer by layer. A layer is either offloaded or recomputed: offloading is for what the link can carry,
// recomputation for what is still too much.
class ActivationPolicy {
 public:
  // Keeps everything.
  ActivationPolicy() = default;
  // Of the model's `layers`, as many are offloaded as asked for, and of those that remain as many recomputed.
  //
  // Offloaded layers are evenly spaced from the first on, so that the link has time after each, the last one too. Not
  // the last layer of the model unless all are: it would come straight back.
  //
  // Recomputed layers are evenly spaced among the others, which puts them next to offloaded ones while there are few:
  // the link gains the time of their products in the backward pass.
  //
  // The last layer is recomputed only when the two counts cover the model, because recomputing it does not lower the
  // peak: its backward pass begins by making the tensor again, while everything else that was saved is still there.
  ActivationPolicy(std::int64_t layers, std::int64_t offloaded, std::int64_t recomputed);

  [[nodiscard]] std::int64_t layers() const noexcept { return static_cast<std::int64_t>(of_layer_.size()); }
  // Layers beyond the plan are kept.
  [[nodiscard]] SwigluInputPolicy of(std::int64_t layer) const noexcept {
    return layer >= 0 && layer < layers() ? of_layer_[static_cast<std::size_t>(layer)] : SwigluInputPolicy::keep;
  }
  [[nodiscard]] std::int64_t count(SwigluInputPolicy what) const noexcept {
    return std::ranges::count(of_layer_, what);
  }

 private:
  // Marks `wanted` of the kept layers, evenly spaced from the first on; the model's last only if all kept ones are.
  void mark(std::int64_t wanted, SwigluInputPolicy as);

  std::vector<SwigluInputPolicy> of_layer_;
};

}  // namespace quench::autograd
