#pragma once
// Keys that earlier versions had. Resolved configs of those versions, in checkpoints too, hold them.

#include <string>
#include <string_view>

#include "core/json/json.h"

namespace quench {

[[nodiscard]] bool is_removed_key(std::string_view path);

// Why the value is refused; "" for one that asks for nothing.
[[nodiscard]] std::string removed_key_refusal(std::string_view path, const Json& value);

}  // namespace quench
