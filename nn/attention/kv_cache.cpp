#include "nn/attention/kv_cache.h"

namespace quench::nn {

KvCache::KvCache(const ModelConfig& config, std::int64_t capacity, DType dtype, Device device,
                 const KvCacheElements& elements)
    : capacity_(capacity),
      transforms_keys_(elements.format != nullptr && elements.format->transforms_keys && elements.scales.empty()) {
  const MemoryScope scope(MemoryCategory::activations);
  QUENCH_CHECK(elements.scales.empty() || elements.scales.size() == config.blocks.size(),
               "KvCache: scales of {} layers, expected {}", elements.scales.size(), config.blocks.size());
  for (const BlockSpec& block : config.blocks) {
    Layer& layer = layers_.emplace_back();
    layer.rows = Tensor::empty({capacity, 2 * block.attention.kv_width()},
                               elements.format != nullptr ? elements.format->codes : dtype, device);
    if (elements.format == nullptr) continue;
    layer.scales = elements.scales.empty() ? Tensor::empty({capacity, 2 * block.attention.kv_heads}, DType::f32, device)
                                           : elements.scales[layers_.size() - 1];
  }
}

void KvCache::check_room(std::int64_t tokens) const {
  QUENCH_CHECK(length_ + tokens <= capacity_, "KvCache: {} tokens after {} exceed the capacity of {}", tokens, length_,
               capacity_);
}

std::int64_t KvCache::bytes_per_token(const ModelConfig& config, DType dtype, const KvCacheElements& elements) {
  const bool dynamic = elements.format != nullptr && elements.scales.empty();
  const auto element =
      static_cast<std::int64_t>(byte_size(elements.format != nullptr ? elements.format->codes : dtype));
  std::int64_t bytes = 0;
  for (const BlockSpec& block : config.blocks)
    bytes += 2 * block.attention.kv_width() * element + (dynamic ? 2 * block.attention.kv_heads * 4 : 0);
  return bytes;
}

}  // namespace quench::nn
