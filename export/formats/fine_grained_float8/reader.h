#pragma once
// Folders of Transformers' quant_method "fp8", in which DeepSeek-V3 and R1 are published: weights in e4m3 with a scale
// for each block, NAME.weight_scale_inv, which the codes are multiplied by; inputs in e4m3 by groups of a block's
// width.

#include <filesystem>
#include <memory>

#include "export/formats/stored_weights.h"

namespace quench {

// Throws unsupported, naming config.json and the member, for other blocks than square ones of 128 and inputs that are
// not quantized dynamically.
[[nodiscard]] std::unique_ptr<StoredWeights> open_fine_grained_float8(const std::filesystem::path& folder,
                                                                      const Json& quantization);

}  // namespace quench
