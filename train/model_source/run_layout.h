#pragma once
// Run folder layout: recognition, checkpoints, and base of relative paths.

#include <filesystem>
#include <string>

namespace quench {

// True for a run folder: it holds the resolved config, unlike a model folder.
[[nodiscard]] bool is_run_folder(const std::filesystem::path& folder);

// Working directory of a run's start, the base of its config's relative paths; empty if not recorded.
[[nodiscard]] std::filesystem::path working_directory_of(const std::filesystem::path& run);

// Checkpoint folder of a run: <run>/checkpoints, or checkpoint.folder relative to the working directory of the start.
[[nodiscard]] std::filesystem::path checkpoint_folder_of(const std::filesystem::path& run);

// Error message for a run or checkpoint folder without usable checkpoints: the fault of each, and the command or folder
// to use instead.
[[nodiscard]] std::string no_checkpoint_message(const std::filesystem::path& folder,
                                                const std::filesystem::path& checkpoints);

}  // namespace quench
