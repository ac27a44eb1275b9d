#pragma once
// A run's folder: how it is recognised, where its checkpoints are, and what its relative paths meant.

#include <filesystem>
#include <string>

#include "core/json/json.h"
#include "train/config/run_config.h"

namespace quench {

// Whether a folder is that of a run: it holds the resolved config, which no model folder has.
[[nodiscard]] bool is_run_folder(const std::filesystem::path& folder);

// The folder in which a run was started, to which its config's relative paths refer; empty where that is not recorded.
[[nodiscard]] std::filesystem::path working_directory_of(const std::filesystem::path& run);

// The folder of a run's checkpoints: <run>/checkpoints, or what checkpoint.folder of its config says, relative to where
// the run was started.
[[nodiscard]] std::filesystem::path checkpoint_folder_of(const std::filesystem::path& run);

// Absolute paths of all that a config names, for sources.json: the working directory, to which relative paths of the
// config refer, model, tokenizer, and each pattern of the data with the files that it stands for.
[[nodiscard]] Json run_sources(const RunConfig& config);

// Whether <run>/model is there and is no run's: it stood there before the run, whose sources.json is not beside it.
[[nodiscard]] bool has_foreign_model_part(const std::filesystem::path& run);

// Why a run folder has no checkpoint to use, and what to do. `folder` is a run folder without a usable one.
[[nodiscard]] std::string no_checkpoint_message(const std::filesystem::path& folder);

}  // namespace quench
