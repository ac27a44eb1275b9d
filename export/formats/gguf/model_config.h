#pragma once
// What a GGUF file's metadata and tensors say of its model.

#include <filesystem>

#include "core/json/json.h"

namespace quench {

// The config.json that they amount to. Throws what read_gguf_head throws; corrupt for values that are impossible or
// contradict each other, unsupported for what no config.json of a known family says; both name file and key.
[[nodiscard]] Json gguf_model_config(const std::filesystem::path& file);

}  // namespace quench
