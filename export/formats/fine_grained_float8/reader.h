#pragma once
// Transformers' quant_method "fp8" (float8_weights.h).

#include <filesystem>
#include <memory>

#include "export/formats/stored_weights.h"

namespace quench {

// By weight_block_size (null or absent: no blocks) and activation_scheme. Throws unsupported, naming config.json and
// key, for blocks that are not square, and other elements than e4m3.
[[nodiscard]] std::unique_ptr<StoredWeights> open_fine_grained_float8(const std::filesystem::path& folder,
                                                                      const Json& quantization);

}  // namespace quench
