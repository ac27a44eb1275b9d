#pragma once
// Embedded at build time from configs/ (cmake/EmbedConfigs.cmake).

#include <span>
#include <string>
#include <string_view>

#include "core/json/json.h"
#include "train/config/run_config.h"

namespace quench {

struct EmbeddedConfig {
  std::string_view kind;  // "models": Hugging Face config.json; "runs": run config
  std::string_view name;  // file name without extension
  std::string_view text;
};

// Sorted by kind and name.
[[nodiscard]] std::span<const EmbeddedConfig> embedded_configs();
// nullptr if not found.
[[nodiscard]] const EmbeddedConfig* find_embedded_config(std::string_view kind, std::string_view name);
// Empty if none is near.
[[nodiscard]] std::string nearest_embedded_config(std::string_view kind, std::string_view name);

// Hugging Face config of the model section: preset or <path>/config.json overridden by inline fields, or these alone.
// Another vocab_size drops token ids of preset or folder. Throws not_found or corrupt naming the file.
[[nodiscard]] Json model_config(const ModelSection& model);

}  // namespace quench
