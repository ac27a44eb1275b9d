#pragma once
// KV cache of decoding: a fixed capacity of tokens, allocated at once for all layers.

#include <vector>

#include "core/ops/kv_cache/kv_format.h"
#include "core/tensor/tensor.h"
#include "nn/spec/model_config.h"

namespace quench::nn {

// Elements of a model's KV caches.
struct KvCacheElements {
  const KvFormat* format = nullptr;  // null: the model's dtype
  // f32 [2 kv_heads] of each layer, keys and values, on the model's device: of calibration. Empty: dynamic, from each
  // token's keys and values of each head.
  std::vector<Tensor> scales;
};

// KV cache of one sequence. Rotated keys and values of a token are adjacent.
class KvCache {
 public:
  KvCache(const ModelConfig& config, std::int64_t capacity, DType dtype, Device device,
          const KvCacheElements& elements = {});

  // Call once after all layers.
  void advance(std::int64_t tokens) { length_ += tokens; }
  // Throws invalid_argument if length() + tokens exceeds the capacity.
  void check_room(std::int64_t tokens) const;

  [[nodiscard]] std::int64_t length() const noexcept { return length_; }
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }
  // [capacity, 2 * AttentionSpec::kv_width()]: keys, then values.
  [[nodiscard]] const Tensor& rows(std::int64_t layer) const { return layers_[static_cast<std::size_t>(layer)].rows; }
  // Scales of codes (core/ops/kv_cache/cache_codes.h); undefined in the model's dtype.
  [[nodiscard]] const Tensor& scales(std::int64_t layer) const {
    return layers_[static_cast<std::size_t>(layer)].scales;
  }

  // Keys are stored after a Hadamard transform.
  [[nodiscard]] bool transforms_keys() const noexcept { return transforms_keys_; }

  // Bytes of a token in all layers, with dynamic scales.
  [[nodiscard]] static std::int64_t bytes_per_token(const ModelConfig& config, DType dtype,
                                                    const KvCacheElements& elements = {});

 private:
  struct Layer {
    Tensor rows, scales;
  };
  std::int64_t capacity_;
  std::int64_t length_ = 0;
  bool transforms_keys_;
  std::vector<Layer> layers_;
};

}  // namespace quench::nn
