#pragma once
// Folders of NVIDIA ModelOpt: quant_algo FP8 (one scale a tensor, static inputs), FP8_PER_CHANNEL_PER_TOKEN and NVFP4,
// in quantization_config (quant_method "modelopt") or in hf_quant_config.json, as vLLM reads them.

#include <filesystem>
#include <memory>
#include <string_view>

#include "export/formats/stored_weights.h"

namespace quench {

inline constexpr std::string_view kModeloptMethod = "modelopt";

// quantization_config of a folder whose config.json has none: by hf_quant_config.json. Null without the file.
[[nodiscard]] Json modelopt_config(const std::filesystem::path& folder);

// Throws unsupported naming folder and quant_algo.
[[nodiscard]] std::unique_ptr<StoredWeights> open_modelopt(const std::filesystem::path& folder,
                                                           const Json& quantization);

}  // namespace quench
