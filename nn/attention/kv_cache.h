#pragma once
// KV cache of decoding: a fixed capacity of tokens, allocated at once for all layers.

#include <vector>

#include "core/tensor/tensor.h"
#include "nn/spec/model_config.h"

namespace quench::nn {

// KV cache of one sequence. Rotated keys and values of a token are adjacent.
class KvCache {
 public:
  KvCache(const ModelConfig& config, std::int64_t capacity, DType dtype, Device device);

  // Call once after all layers.
  void advance(std::int64_t tokens) { length_ += tokens; }
  // Throws invalid_argument if length() + tokens exceeds the capacity.
  void check_room(std::int64_t tokens) const;

  [[nodiscard]] std::int64_t length() const noexcept { return length_; }
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }
  // [capacity, 2 * AttentionSpec::kv_width()]: keys, then values.
  [[nodiscard]] const Tensor& rows(std::int64_t layer) const { return layers_[static_cast<std::size_t>(layer)]; }

 private:
  std::int64_t capacity_;
  std::int64_t length_ = 0;
  std::vector<Tensor> layers_;
};

}  // namespace quench::nn
