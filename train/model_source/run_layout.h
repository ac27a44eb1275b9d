#pragma once
// Run folder: recognition, checkpoints, base of relative paths.

#include <filesystem>
#include <string>

namespace quench {

// Holds the resolved config, unlike a model folder.
[[nodiscard]] bool is_run_folder(const std::filesystem::path& folder);

// Working directory of the run's start: base of its config's relative paths; empty if not recorded.
[[nodiscard]] std::filesystem::path working_directory_of(const std::filesystem::path& run);

// <run>/checkpoints, or checkpoint.folder relative to that working directory.
[[nodiscard]] std::filesystem::path checkpoint_folder_of(const std::filesystem::path& run);

// For a folder without usable checkpoints: the fault of each, and the command or folder to use instead.
[[nodiscard]] std::string no_checkpoint_message(const std::filesystem::path& folder,
                                                const std::filesystem::path& checkpoints);

}  // namespace quench
