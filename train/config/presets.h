#pragma once
// Ready-made configs, embedded in the program from configs/ at build time (cmake/EmbedConfigs.cmake).

#include <span>
#include <string>
#include <string_view>

#include "core/json/json.h"
#include "train/config/run_config.h"

namespace quench {

struct EmbeddedConfig {
  std::string_view kind;  // "models": Hugging Face config.json; "runs": a run config
  std::string_view name;  // file name without extension
  std::string_view text;
};

// All of them, sorted by kind and name.
[[nodiscard]] std::span<const EmbeddedConfig> embedded_configs();
// nullptr when there is none of that name.
[[nodiscard]] const EmbeddedConfig* find_embedded_config(std::string_view kind, std::string_view name);
// The name nearest to `name`, or empty when none is near.
[[nodiscard]] std::string nearest_embedded_config(std::string_view kind, std::string_view name);

// The Hugging Face config of the model that the section describes: the preset or <path>/config.json with the inline
// fields set over it, or the inline fields alone. Token ids belong to a vocabulary: with another vocab_size those of
// preset or folder are left out. Throws not_found or corrupt naming the file.
[[nodiscard]] Json model_config(const ModelSection& model);

}  // namespace quench
