#pragma once
// Documentation from the field table.

#include <string>
#include <string_view>

#include "core/json/json.h"

namespace quench {

// JSON Schema (draft 2020-12), for editors.
[[nodiscard]] Json config_schema();

// Markdown: per section, a table of key, type, default, resume policy and meaning.
[[nodiscard]] std::string config_reference();

// Generated parts of pages, between <!-- begin generated: PART --> and <!-- end generated -->.
inline constexpr std::string_view kConfigReference = "quench config docs";
[[nodiscard]] bool has_generated_part(std::string_view page, std::string_view part);
// Throws corrupt for a missing marker.
[[nodiscard]] std::string replace_generated_part(std::string_view page, std::string_view part, std::string_view text);

}  // namespace quench
