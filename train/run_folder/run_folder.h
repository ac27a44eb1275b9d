#pragma once
// Records of a run's inputs in the run folder.

#include <filesystem>

#include "core/json/json.h"
#include "train/config/run_config.h"

namespace quench {

// Absolute paths of all inputs for sources.json: working directory (base of relative paths), model, tokenizer, and each
// data pattern with its files.
[[nodiscard]] Json run_sources(const RunConfig& config);

// True if <run>/model exists without the sources.json of a run, i.e. is not a run's output.
[[nodiscard]] bool has_foreign_model_part(const std::filesystem::path& run);

}  // namespace quench
