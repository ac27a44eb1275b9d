#pragma once
// The parts of the report that are text and numbers rather than charts. Each returns HTML, empty when the run has
// nothing to show in it.

#include <string>

#include "train/report/run_data.h"

namespace quench {

// Cards with the run's key figures.
[[nodiscard]] std::string render_summary(const RunData& run);
// The latest result of every evaluation, then the history of those that ran more than once.
[[nodiscard]] std::string render_evaluations(const RunData& run);
// The newest generated texts.
[[nodiscard]] std::string render_samples(const RunData& run);
[[nodiscard]] std::string render_checkpoints(const RunData& run);
// A JSON object as panels of key-value tables: one for each section, one for the values on the top level.
[[nodiscard]] std::string render_object(const Json& object, const std::string& top_level_title);

}  // namespace quench
