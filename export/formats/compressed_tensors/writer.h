#pragma once
// For vLLM, SGLang and Transformers.

#include <filesystem>
#include <vector>

#include "export/formats/compressed_tensors/config.h"
#include "export/formats/model_tensors.h"
#include "export/formats/safetensors_items.h"

namespace quench {

struct StoredKvCache;

// Tensors of one quantized layer; `tensor` must outlive them.
void add_compressed_layer(SafetensorsItems& items, const ModelTensor& tensor, CompressedForm form);

// safetensors files in an existing `folder`. Returns the quantization_config. `cache`: null: none.
[[nodiscard]] Json write_compressed_tensors(const std::vector<ModelTensor>& tensors,
                                            const std::filesystem::path& folder, std::uint64_t max_shard_bytes,
                                            const StoredKvCache* cache = nullptr);

}  // namespace quench
