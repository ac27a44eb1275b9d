#pragma once
// Model config from a GGUF file's metadata and tensors.

#include <filesystem>

#include "core/json/json.h"

namespace quench {

// Equivalent config.json. Throws like read_gguf_head; corrupt for invalid or contradictory values, unsupported for
// models outside the known families; both name file and key.
[[nodiscard]] Json gguf_model_config(const std::filesystem::path& file);

}  // namespace quench
