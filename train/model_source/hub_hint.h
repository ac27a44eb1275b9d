#pragma once
// Hints at downloads from the Hugging Face Hub, for messages about paths that do not exist.

#include <string>
#include <string_view>

namespace quench {

// Download hint if X of "X does not exist" is hf:OWNER/NAME or looks like a name of the Hugging Face Hub (owner/name).
// Else empty.
[[nodiscard]] std::string hub_hint(std::string_view path);
// The same for a data set; a name with an extension is a file's.
[[nodiscard]] std::string hub_data_hint(std::string_view path);

}  // namespace quench
