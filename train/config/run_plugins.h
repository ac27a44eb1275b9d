#pragma once
// Plug-ins of a run (key run.plugins). A run's config and checkpoints record them; code that a checkpoint names is
// never loaded on its behalf.

#include <filesystem>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "train/checkpoint/checkpoint_state.h"

namespace quench {

// Loads those that a user's config names. Throws as load_plugin(); ignores a malformed list, which read_config()
// reports.
void load_run_plugins(const Json& document);

// Plug-ins that a config names and that are not loaded.
[[nodiscard]] std::vector<std::string> unloaded_plugins(const Json& document);

// Paths of all loaded plug-ins, absolute.
[[nodiscard]] std::vector<std::string> loaded_plugin_paths();

// Records name, version and path of the loaded plug-ins; nothing where there are none.
void store_plugins(CheckpointState& state);
// [{"name", "version", "path"}]; null: none.
[[nodiscard]] const Json* stored_plugins(const CheckpointState& state);
// Throws not_found naming a recorded plug-in that is not loaded. Warns about another version.
void require_plugins(const CheckpointState& state);

// Message naming a plug-in of the run in this folder that is not loaded; empty: none.
[[nodiscard]] std::string missing_plugin(const std::filesystem::path& run_folder);

}  // namespace quench
