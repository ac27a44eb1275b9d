#pragma once
// Writer of compressed-tensors weights, for vLLM, SGLang and Transformers.

#include <filesystem>
#include <vector>

#include "export/formats/model_tensors.h"

namespace quench {

// Writes safetensors files to an existing `folder`. Returns the quantization_config for config.json.
[[nodiscard]] Json write_compressed_tensors(const std::vector<ModelTensor>& tensors,
                                            const std::filesystem::path& folder, std::uint64_t max_shard_bytes);

}  // namespace quench
