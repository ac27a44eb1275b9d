#pragma once
// Transformers' quant_method "fp8" (DeepSeek-V3, R1): e4m3 weights with block scales NAME.weight_scale_inv
// (multipliers); e4m3 inputs with groups of the block's width.

#include <filesystem>
#include <memory>

#include "export/formats/stored_weights.h"

namespace quench {

// Throws unsupported, naming config.json and key, unless blocks are 128 x 128 and inputs dynamic.
[[nodiscard]] std::unique_ptr<StoredWeights> open_fine_grained_float8(const std::filesystem::path& folder,
                                                                      const Json& quantization);

}  // namespace quench
