#pragma once
// Weights in the tensors of compressed-tensors, which vLLM, SGLang and Transformers load.

#include <filesystem>
#include <vector>

#include "export/formats/model_tensors.h"

namespace quench {

// Writes the tensors to safetensors files in `folder`, which exists. Returns the quantization_config for config.json.
[[nodiscard]] Json write_compressed_tensors(const std::vector<ModelTensor>& tensors,
                                            const std::filesystem::path& folder, std::uint64_t max_shard_bytes);

}  // namespace quench
