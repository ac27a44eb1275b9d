#pragma once
// Run facts: model, precision, hardware, versions.

#include <string>
#include <utility>
#include <vector>

#include "train/report/run_data.h"

namespace quench {

// (name, value) pairs of plain text in display order; unknown ones are omitted.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> run_facts(const RunData& run);

// HTML for the page head; empty without facts.
[[nodiscard]] std::string render_facts(const RunData& run);

}  // namespace quench
