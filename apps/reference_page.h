#pragma once
// The parts of documentation pages that are written from the program's tables.

#include <string>
#include <string_view>

#include "apps/command.h"

namespace quench {

// The page with each generated part replaced. A part stands between the lines <!-- begin generated: NAME --> and
// <!-- end generated -->. `program` lists the verbs of the command-line reference. Throws Error(corrupt) for a page
// without a known part, and where a mark is missing.
[[nodiscard]] std::string update_reference_page(std::string_view page, const Command& program);

}  // namespace quench
