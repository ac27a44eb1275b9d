#pragma once
// Transformers' quant_method "mxfp4" (gpt-oss): experts' projections as e2m1 codes NAME_blocks u8 [E, out, in / 32,
// 16], the even element in the low nibble, with e8m0 scales NAME_scales u8 [E, out, in / 32]; all else dense. Read as
// the dense tensor NAME bf16 [E, in, out], which holds every value exactly.

#include <filesystem>
#include <memory>

#include "export/formats/stored_weights.h"

namespace quench {

inline constexpr std::string_view kMxfp4Method = "mxfp4";
inline constexpr std::string_view kMxfp4Blocks = "_blocks", kMxfp4Scales = "_scales";  // after the projection's name

[[nodiscard]] std::unique_ptr<StoredWeights> open_mxfp4_experts(const std::filesystem::path& folder,
                                                                const Json& quantization);

}  // namespace quench
