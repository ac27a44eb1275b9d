#pragma once
// Page of several runs: shared charts, final metrics, differing settings.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "train/report/run_data.h"

namespace quench {

// Palette size.
inline constexpr std::size_t kMaxComparedRuns = 8;

// Self-contained; 2 to kMaxComparedRuns runs with distinct names.
[[nodiscard]] std::string render_comparison(std::span<const RunData> runs);

// Replaces `output` atomically. Runs of equal name are named by folder. Throws bad_config for too few, too many or
// duplicate folders, and errors of load_run.
std::vector<RunData> write_comparison(std::span<const std::filesystem::path> folders,
                                      const std::filesystem::path& output);

}  // namespace quench
