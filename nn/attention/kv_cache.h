#pragma once
// Keys and values of all tokens seen so far, for generation.

#include <vector>

#include "core/tensor/tensor.h"
#include "nn/model_config.h"

namespace quench::nn {

// One sequence. A layer keeps the rotated keys and the values of a token side by side, as its fused projection makes
// them: one copy takes both.
class KvCache {
 public:
  KvCache(const ModelConfig& config, std::int64_t capacity, DType dtype, Device device);

  // Once after all layers.
  void advance(std::int64_t tokens) { length_ += tokens; }
  // Throws invalid_argument where `tokens` more do not fit behind the length() already there.
  void check_room(std::int64_t tokens) const;

  [[nodiscard]] std::int64_t length() const noexcept { return length_; }
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }
  // [capacity, 2 * kv_heads*head_dim]: the rotated keys of a token, and its values behind them.
  [[nodiscard]] const Tensor& rows(std::int64_t layer) const { return layers_[static_cast<std::size_t>(layer)]; }

 private:
  std::int64_t capacity_;
  std::int64_t length_ = 0;
  std::vector<Tensor> layers_;
};

}  // namespace quench::nn
