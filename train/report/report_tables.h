#pragma once
// Sections as HTML, empty without content.

#include <string>
#include <utility>
#include <vector>

#include "train/report/run_data.h"

namespace quench {

[[nodiscard]] std::string render_summary(const RunData& run);
// Latest of every evaluation, then histories.
[[nodiscard]] std::string render_evaluations(const RunData& run);
[[nodiscard]] std::string render_samples(const RunData& run);
[[nodiscard]] std::string render_checkpoints(const RunData& run);
// Dotted keys, truncated values; arrays and empty objects are leaves, at most a few hundred.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> flat_values(const Json& object);
// "3.2817", "1.2e-07"; "n/a" if not finite.
[[nodiscard]] std::string format_value(double value);
// "1.21 GiB"
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);
// One table per section, one for top-level values.
[[nodiscard]] std::string render_object(const Json& object, const std::string& top_level_title);

}  // namespace quench
