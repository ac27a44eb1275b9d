#pragma once
// Activation policy: handling of each layer's largest saved tensor, the input of its activation function, until the
// backward pass.

#include <algorithm>
#include <cstdint>
#include <vector>

namespace quench::autograd {

enum class SavePolicy {
  keep,       // in device memory
  offload,    // in pinned host memory (autograd/offload.h)
  recompute,  // its GEMM is repeated in the backward pass; requires selective recompute
};

class ActivationPolicy {
 public:
  ActivationPolicy() = default;
  // `offloaded` layers are evenly spaced from the first, so that copies overlap compute; not the last layer, whose
  // tensor is needed at once, unless all are. `recomputed` ones are evenly spaced among the rest; the last layer only
  // if both counts cover the model, as its recompute does not lower the peak.
  // `attention`: layers that keep attention's results under full recompute, evenly spaced: among offloaded layers
  // first.
  ActivationPolicy(std::int64_t layers, std::int64_t offloaded, std::int64_t recomputed, std::int64_t attention = 0);

  [[nodiscard]] std::int64_t layers() const noexcept { return static_cast<std::int64_t>(of_layer_.size()); }
  [[nodiscard]] SavePolicy of(std::int64_t layer) const noexcept {
    return layer >= 0 && layer < layers() ? of_layer_[static_cast<std::size_t>(layer)] : SavePolicy::keep;
  }
  [[nodiscard]] bool keeps_attention(std::int64_t layer) const noexcept;
  [[nodiscard]] std::int64_t kept_attention() const noexcept { return attention_; }
  [[nodiscard]] std::int64_t count(SavePolicy what) const noexcept { return std::ranges::count(of_layer_, what); }

 private:
  void mark(std::int64_t wanted, SavePolicy as);

  std::vector<SavePolicy> of_layer_;
  std::int64_t attention_ = 0;
};

}  // namespace quench::autograd
