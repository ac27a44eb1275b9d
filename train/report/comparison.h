#pragma once
// Several runs on one page: their curves in the same charts, their last figures, the settings in which they differ.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "train/report/run_data.h"

namespace quench {

// As many as the palette has colours.
inline constexpr std::size_t kMaxComparedRuns = 8;

// The whole page, as self-contained as a run's report. 2 to kMaxComparedRuns runs with names that differ.
[[nodiscard]] std::string render_comparison(std::span<const RunData> runs);

// Reads the run folders and replaces `output` atomically. Runs of the same name are called by their folders. Returns
// what was read. Throws bad_config for too few or too many folders, or one that is named twice, and what load_run
// throws.
std::vector<RunData> write_comparison(std::span<const std::filesystem::path> folders,
                                      const std::filesystem::path& output);

}  // namespace quench
