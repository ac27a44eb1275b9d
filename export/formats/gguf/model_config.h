#pragma once
// Model config of a GGUF file, as a config.json.

#include <filesystem>

#include "core/json/json.h"

namespace quench {

// config.json of metadata and tensors. Throws like read_gguf_head; corrupt for invalid or contradictory values,
// unsupported for unknown families; naming file and key.
[[nodiscard]] Json gguf_model_config(const std::filesystem::path& file);

}  // namespace quench
