#pragma once
// What a run was: model, precision, hardware, versions.

#include <string>
#include <utility>
#include <vector>

#include "train/report/run_data.h"

namespace quench {

// (name, value) pairs as plain text, in order of display; what the run folder does not tell is left out.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> run_facts(const RunData& run);

// The same as HTML for the head of the page; empty when nothing is known.
[[nodiscard]] std::string render_facts(const RunData& run);

}  // namespace quench
