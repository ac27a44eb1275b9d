#pragma once
// Reader of Transformers' quant_method "fp8" (DeepSeek-V3, R1): e4m3 weights with block scales NAME.weight_scale_inv (a
// multiplier of the values); inputs in e4m3 with groups of the block's width.

#include <filesystem>
#include <memory>

#include "export/formats/stored_weights.h"

namespace quench {

// Throws unsupported, naming config.json and the key, for blocks other than 128 x 128 and for static input
// quantization.
[[nodiscard]] std::unique_ptr<StoredWeights> open_fine_grained_float8(const std::filesystem::path& folder,
                                                                      const Json& quantization);

}  // namespace quench
