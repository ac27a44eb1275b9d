#pragma once
// Records of a run's inputs in its folder.

#include <filesystem>

#include "core/json/json.h"
#include "train/config/run_config.h"

namespace quench {

// Absolute paths of all that a config names, for sources.json: the working directory, to which relative paths of the
// config refer, model, tokenizer, and each pattern of the data with the files that it stands for.
[[nodiscard]] Json run_sources(const RunConfig& config);

// Whether <run>/model is there and is no run's: it stood there before the run, whose sources.json is not beside it.
[[nodiscard]] bool has_foreign_model_part(const std::filesystem::path& run);

}  // namespace quench
