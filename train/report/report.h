#pragma once
// Report of a run, or comparison of several: one HTML file that loads nothing from elsewhere. page.html draws the data
// of run_json.h.

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/report/run_data.h"

namespace quench {

// Palette size.
inline constexpr std::size_t kMaxComparedRuns = 8;

// Template, with @DATA@ in place of the data (cmake/EmbedFiles.cmake).
[[nodiscard]] std::string_view page_template() noexcept;

// Report of one run, comparison of 2 to kMaxComparedRuns with distinct names. `attached`: text files, shown as they are
// under their names.
[[nodiscard]] std::string render_report(std::span<const RunData> runs,
                                        std::span<const std::filesystem::path> attached = {});

// Replaces `output` atomically. Returns the data, with notes on unreadable parts. Throws errors of load_run, io for an
// attached file, io or no_space for the page.
RunData write_report(const std::filesystem::path& run_folder, const std::filesystem::path& output,
                     std::span<const std::filesystem::path> attached = {});

// Runs of equal name are named by folder. Throws bad_config for too few, too many or duplicate folders too.
std::vector<RunData> write_comparison(std::span<const std::filesystem::path> folders,
                                      const std::filesystem::path& output);

[[nodiscard]] bool is_report(const std::filesystem::path& file);

}  // namespace quench
