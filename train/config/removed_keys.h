#pragma once
// Keys of earlier versions, in their resolved configs and checkpoints.

#include <string>
#include <string_view>

#include "core/json/json.h"

namespace quench {

[[nodiscard]] bool is_removed_key(std::string_view path);

// Empty if the value has no effect.
[[nodiscard]] std::string removed_key_refusal(std::string_view path, const Json& value);

}  // namespace quench
