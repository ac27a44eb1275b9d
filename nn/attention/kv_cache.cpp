#include "nn/attention/kv_cache.h"

#include "core/ops/elementwise.h"

namespace quench::nn {

KvCache::KvCache(const ModelConfig& config, std::int64_t capacity, DType dtype, Device device)
    : kv_heads_(config.num_key_value_heads), head_dim_(config.attention_dim()), capacity_(capacity) {
  const MemoryScope scope(MemoryCategory::activations);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    layers_.push_back(Tensor::empty({capacity, 2 * kv_heads_ * head_dim_}, dtype, device));
}

void KvCache::check_room(std::int64_t tokens) const {
  QUENCH_CHECK(length_ + tokens <= capacity_, "KvCache: {} tokens after {} exceed the capacity of {}", tokens, length_,
               capacity_);
}

void KvCache::store(std::int64_t layer, const Tensor& keys_values, const Tensor& positions) const {
  copy_rows({keys_values, layers_[static_cast<std::size_t>(layer)], positions});
}

Tensor KvCache::half(std::int64_t layer, std::int64_t index) const {
  const std::int64_t width = kv_heads_ * head_dim_;
  return layers_[static_cast<std::size_t>(layer)].strided({capacity_, kv_heads_, head_dim_}, {2 * width, head_dim_, 1},
                                                          index * width);
}

Tensor KvCache::keys(std::int64_t layer) const {
  return half(layer, 0);
}

Tensor KvCache::values(std::int64_t layer) const {
  return half(layer, 1);
}

}  // namespace quench::nn
