#pragma once
// Sources of a run folder (sources.json), and folders that no run may use.

#include <filesystem>

#include "core/json/json.h"
#include "train/config/run_config.h"

namespace quench {

// For sources.json: absolute paths of working directory (base of relative paths), model, tokenizer, and data patterns
// with their files.
[[nodiscard]] Json run_sources(const RunConfig& config);

// <run>/model exists without a run's sources.json.
[[nodiscard]] bool has_foreign_model_part(const std::filesystem::path& run);

}  // namespace quench
