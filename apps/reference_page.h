#pragma once
// Generated parts of documentation pages, from the program's tables.

#include <string>
#include <string_view>

#include "apps/command.h"

namespace quench {

// The page with each generated part replaced. Markers: <!-- begin generated: NAME --> and <!-- end generated -->.
// `program` lists the verbs of the CLI reference. Throws Error(corrupt) for a page without a known part or with a
// missing marker.
[[nodiscard]] std::string update_reference_page(std::string_view page, const Command& program);

}  // namespace quench
