#pragma once
// The parts of the report that are text and numbers rather than charts. Each returns HTML, empty when the run has
// nothing to show in it.

#include <string>
#include <utility>
#include <vector>

#include "train/report/run_data.h"

namespace quench {

// Cards with the run's key figures.
[[nodiscard]] std::string render_summary(const RunData& run);
// The latest result of every evaluation, then the history of those that ran more than once.
[[nodiscard]] std::string render_evaluations(const RunData& run);
// The newest generated texts.
[[nodiscard]] std::string render_samples(const RunData& run);
[[nodiscard]] std::string render_checkpoints(const RunData& run);
// The leaves of a JSON object, keys joined with dots, values as text of bounded length. Arrays and empty objects are
// leaves; what is beyond some hundred leaves is left out.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> flat_values(const Json& object);
// A number for a table: "3.2817", "1.2e-07"; "n/a" where it is not finite.
[[nodiscard]] std::string format_value(double value);
// "1.21 GiB"
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);
// A JSON object as panels of key-value tables: one for each section, one for the values on the top level.
[[nodiscard]] std::string render_object(const Json& object, const std::string& top_level_title);

}  // namespace quench
