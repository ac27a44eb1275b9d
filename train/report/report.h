#pragma once
// The HTML report of a run: one file without scripts or outside references, readable anywhere and safe to open even
// when the run folder's texts are not.

#include <filesystem>
#include <string>

#include "train/report/run_data.h"

namespace quench {

// The whole page.
[[nodiscard]] std::string render_report(const RunData& run);

// Reads `run_folder` and replaces `output` atomically. Returns what was read, with notes on what could not be. Throws
// what load_run throws, io or no_space when the page cannot be written.
RunData write_report(const std::filesystem::path& run_folder, const std::filesystem::path& output);

}  // namespace quench
