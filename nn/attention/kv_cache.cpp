#include "nn/attention/kv_cache.h"

namespace quench::nn {

KvCache::KvCache(const ModelConfig& config, std::int64_t capacity, DType dtype, Device device) : capacity_(capacity) {
  const MemoryScope scope(MemoryCategory::activations);
  for (const BlockSpec& block : config.blocks)
    layers_.push_back(Tensor::empty({capacity, 2 * block.attention.kv_width()}, dtype, device));
}

void KvCache::check_room(std::int64_t tokens) const {
  QUENCH_CHECK(length_ + tokens <= capacity_, "KvCache: {} tokens after {} exceed the capacity of {}", tokens, length_,
               capacity_);
}

}  // namespace quench::nn
