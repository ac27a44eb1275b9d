#pragma once
// The parts of documentation pages that are written from the program's tables.

#include <string>
#include <string_view>

namespace quench {

// The page with each generated part made anew. A part stands between the lines <!-- begin generated: NAME --> and
// <!-- end generated -->. Throws Error(corrupt) for a page without a part that is known, and where a mark is missing.
[[nodiscard]] std::string update_reference_page(std::string_view page);

}  // namespace quench
