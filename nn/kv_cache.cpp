#include "nn/kv_cache.h"

#include "core/ops/elementwise.h"

namespace quench::nn {

KvCache::KvCache(const ModelConfig& config, std::int64_t capacity, DType dtype, Device device)
    : kv_heads_(config.num_key_value_heads), head_dim_(config.head_dim), capacity_(capacity) {
  const MemoryScope scope(MemoryCategory::activations);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    keys_.push_back(Tensor::empty({capacity, kv_heads_ * head_dim_}, dtype, device));
    values_.push_back(Tensor::empty({capacity, kv_heads_ * head_dim_}, dtype, device));
  }
}

void KvCache::append(std::int64_t layer, const Tensor& keys, const Tensor& values) {
  const std::int64_t tokens = keys.size(0);
  QUENCH_CHECK(length_ + tokens <= capacity_, "KvCache: {} tokens after {} exceed the capacity of {}", tokens, length_,
               capacity_);
  const auto index = static_cast<std::size_t>(layer);
  copy_rows({keys, keys_[index].narrow(0, length_, tokens)});
  copy_rows({values, values_[index].narrow(0, length_, tokens)});
}

Tensor KvCache::keys(std::int64_t layer) const {
  return keys_[static_cast<std::size_t>(layer)].view({capacity_, kv_heads_, head_dim_});
}

Tensor KvCache::values(std::int64_t layer) const {
  return values_[static_cast<std::size_t>(layer)].view({capacity_, kv_heads_, head_dim_});
}

}  // namespace quench::nn
