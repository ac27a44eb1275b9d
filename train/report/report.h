#pragma once
// Report of a run: one HTML file without scripts or external references. Texts of the run folder are untrusted and
// escaped.

#include <filesystem>
#include <span>
#include <string>

#include "train/report/run_data.h"

namespace quench {

// `attached`: text files, shown as they are under their names.
[[nodiscard]] std::string render_report(const RunData& run, std::span<const std::filesystem::path> attached = {});

// Replaces `output` atomically. Returns the data, with notes on unreadable parts. Throws errors of load_run, io for an
// attached file, io or no_space for the page.
RunData write_report(const std::filesystem::path& run_folder, const std::filesystem::path& output,
                     std::span<const std::filesystem::path> attached = {});

}  // namespace quench
