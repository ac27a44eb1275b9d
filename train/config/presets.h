#pragma once
// Embedded at build time from configs/ (cmake/EmbedFiles.cmake).

#include <span>
#include <string>
#include <string_view>
#include <vector>

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
// Embedded model of that name in any case; nullptr if not found.
[[nodiscard]] const EmbeddedConfig* find_embedded_model(std::string_view name);
// Empty if none is near.
[[nodiscard]] std::string nearest_embedded_config(std::string_view kind, std::string_view name);

// Embedded model that an embedded run trains: its preset, or the one that the name of its folder begins with
// ("Llama-3.1-8B-Instruct"). nullptr if there is none.
[[nodiscard]] const EmbeddedConfig* model_of_run(const EmbeddedConfig& run);
// Embedded runs of an embedded model, by name.
[[nodiscard]] std::vector<std::string> ready_runs(std::string_view model);

// Config of preset or <path>/config.json, without inline fields; an empty object for these alone. Throws as
// model_config().
[[nodiscard]] Json origin_config(const ModelSection& model);

// Hugging Face config of the model section: preset or <path>/config.json overridden by inline fields, RoPE settings as
// a whole (nn::override_rope), or these alone. Another vocab_size drops token ids of preset or folder. Throws not_found
// or corrupt naming the file.
[[nodiscard]] Json model_config(const ModelSection& model);

}  // namespace quench
