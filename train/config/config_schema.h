#pragma once
// The config described for other programs and for people, from the field table.

#include <string>
#include <string_view>

#include "core/json/json.h"

namespace quench {

// JSON Schema (draft 2020-12) of the config file, for completion and checks in editors.
[[nodiscard]] Json config_schema();

// Markdown: for each section a table of its keys with type, default, resume policy and meaning.
[[nodiscard]] std::string config_reference();

// Pages of documentation hold generated parts, between the lines <!-- begin generated: PART --> and
// <!-- end generated -->.
inline constexpr std::string_view kConfigReference = "quench config docs";  // the part that is config_reference()
[[nodiscard]] bool has_generated_part(std::string_view page, std::string_view part);
// `page` with `text` in place of what stands in the part. Throws Error(corrupt) where a mark is missing.
[[nodiscard]] std::string replace_generated_part(std::string_view page, std::string_view part, std::string_view text);

}  // namespace quench
