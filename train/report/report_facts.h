#pragma once
// Facts of a run in a report's head: model, data, recipe, duration.

#include <string>
#include <utility>
#include <vector>

#include "train/report/run_data.h"

namespace quench {

// Plain text in display order, without unknown ones.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> run_facts(const RunData& run);

}  // namespace quench
