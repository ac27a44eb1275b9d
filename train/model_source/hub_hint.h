#pragma once
// Names of models that are not on this machine.

#include <string>
#include <string_view>

namespace quench {

// What to add to "X does not exist" where X looks like a model of the Hugging Face Hub (owner/name): how to download
// it. Else empty.
[[nodiscard]] std::string hub_hint(std::string_view path);

}  // namespace quench
