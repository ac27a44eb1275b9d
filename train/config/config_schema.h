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

// `page` with what stands between the marks of the generated part replaced by config_reference(). Throws
// Error(corrupt) where the marks are missing.
[[nodiscard]] std::string update_config_page(std::string_view page);

}  // namespace quench
