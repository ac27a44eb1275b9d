#include "nn/attention/kv_cache.h"

namespace quench::nn {

KvCache::KvCache(const ModelConfig& config, std::int64_t capacity, DType dtype, Device device) : capacity_(capacity) {
  const MemoryScope scope(MemoryCategory::activations);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    layers_.push_back(
        Tensor::empty({capacity, 2 * config.num_key_value_heads * config.attention_dim()}, dtype, device));
}

void KvCache::check_room(std::int64_t tokens) const {
  QUENCH_CHECK(length_ + tokens <= capacity_, "KvCache: {} tokens after {} exceed the capacity of {}", tokens, length_,
               capacity_);
}

}  // namespace quench::nn
