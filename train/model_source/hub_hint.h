#pragma once
// Hub names of models that are not on disk.

#include <string>
#include <string_view>

namespace quench {

// Download hint for "X does not exist" if X looks like a Hugging Face Hub name (owner/name). Else empty.
[[nodiscard]] std::string hub_hint(std::string_view path);

}  // namespace quench
