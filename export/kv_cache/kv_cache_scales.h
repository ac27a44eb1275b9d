#pragma once
// Scales of a quantized KV cache by calibration, and as "model.layers.N.self_attn.k_scale" and "...v_scale" of a
// folder.

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "export/formats/safetensors_items.h"
#include "export/kv_cache/kv_cache_scheme.h"
#include "nn/decoder/causal_lm.h"

namespace quench {

// As a folder holds it for its readers.
struct StoredKvCache {
  KvCacheScheme scheme;
  nn::KvCacheElements elements;
};

// KV cache of the model under the scheme, on its device: without calibration data for dynamic scales. A scale is the
// amax of the cached (rotated) keys, or values, of all sequences over the format's largest code. Throws
// nonfinite, naming the layer, for NaN and infinity. The model runs as it is.
[[nodiscard]] nn::KvCacheElements calibrate_kv_cache(const nn::CausalLm& model, const KvCacheScheme& scheme,
                                                     std::span<const std::vector<std::int32_t>> sequences);

// f32: [1] a layer, or [kv_heads, 1, 1], as llm-compressor has them. None for dynamic scales.
void add_kv_scales(SafetensorsItems& items, const StoredKvCache& cache);

// KV cache of a safetensors folder's readers. Throws corrupt, naming folder and tensor, for missing and misshaped
// scales, and those that are not positive and finite.
[[nodiscard]] nn::KvCacheElements read_kv_cache(const std::filesystem::path& folder, const KvCacheScheme& scheme,
                                                const nn::ModelConfig& config, Device device);

// Throws unsupported for a model whose cache readers do not scale by such tensors: multi-head latent attention.
void require_kv_scales(const nn::ModelConfig& config);

}  // namespace quench
