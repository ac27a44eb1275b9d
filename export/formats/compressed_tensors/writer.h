#pragma once
// For vLLM, SGLang and Transformers.

#include <filesystem>
#include <vector>

#include "export/formats/model_tensors.h"

namespace quench {

// safetensors files in an existing `folder`. Returns the quantization_config.
[[nodiscard]] Json write_compressed_tensors(const std::vector<ModelTensor>& tensors,
                                            const std::filesystem::path& folder, std::uint64_t max_shard_bytes);

}  // namespace quench
