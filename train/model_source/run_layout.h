#pragma once
// Layout of a run folder: its recognition, its checkpoints and the base of its relative paths.

#include <filesystem>
#include <string>

namespace quench {

// Whether a folder is that of a run: it holds the resolved config, which no model folder has.
[[nodiscard]] bool is_run_folder(const std::filesystem::path& folder);

// The folder in which a run was started, to which its config's relative paths refer; empty where that is not recorded.
[[nodiscard]] std::filesystem::path working_directory_of(const std::filesystem::path& run);

// The folder of a run's checkpoints: <run>/checkpoints, or what checkpoint.folder of its config says, relative to where
// the run was started.
[[nodiscard]] std::filesystem::path checkpoint_folder_of(const std::filesystem::path& run);

// Message for a folder of a run or of checkpoints whose `checkpoints` hold no usable one: the fault of each, and the
// command or folder to use instead.
[[nodiscard]] std::string no_checkpoint_message(const std::filesystem::path& folder,
                                                const std::filesystem::path& checkpoints);

}  // namespace quench
