#pragma once
// Keys and values of all tokens seen so far, for generation.

#include <vector>

#include "core/tensor.h"
#include "nn/model_config.h"

namespace quench::nn {

// One sequence. Layer l keeps rotated keys and values as [capacity, kv_heads*head_dim] matrices.
class KvCache {
 public:
  KvCache(const ModelConfig& config, std::int64_t capacity, DType dtype, Device device);

  // Copies the key and value columns of a fused [N, width] matrix behind the `length()` tokens already there.
  // Throws invalid_argument when the cache is full. Call advance(N) once after all layers.
  void append(std::int64_t layer, const Tensor& keys, const Tensor& values);
  void advance(std::int64_t tokens) { length_ += tokens; }
  void clear() noexcept { length_ = 0; }

  [[nodiscard]] std::int64_t length() const noexcept { return length_; }
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }
  // [capacity, kv_heads, head_dim]
  [[nodiscard]] Tensor keys(std::int64_t layer) const;
  [[nodiscard]] Tensor values(std::int64_t layer) const;

 private:
  std::int64_t kv_heads_;
  std::int64_t head_dim_;
  std::int64_t capacity_;
  std::int64_t length_ = 0;
  std::vector<Tensor> keys_;
  std::vector<Tensor> values_;
};

}  // namespace quench::nn
