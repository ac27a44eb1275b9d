#pragma once
// Layers of multi-token prediction in model folders.

#include <filesystem>

#include "export/formats/stored_weights.h"
#include "nn/spec/model_config.h"

namespace quench {

// True if weights of the MTP layers that `config` declares are stored.
[[nodiscard]] bool holds_mtp(const StoredWeights& weights, const nn::ModelConfig& config);
// The same for a folder or GGUF file with its own config. Throws as open_stored_weights().
[[nodiscard]] bool holds_mtp(const std::filesystem::path& folder, const nn::ModelConfig& config);

}  // namespace quench
