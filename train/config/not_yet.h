#pragma once
// Keys and values that configs may come with and this version does not execute. They are refused with a reason of their
// own. A value that asks for nothing is no refusal: resolved configs of earlier versions hold such values.

#include <string>
#include <string_view>

#include "core/json/json.h"

namespace quench {

// Whether a path is such a key, lies below one ("lora.rank"), or above one ("parallel", "export").
[[nodiscard]] bool is_not_yet(std::string_view path);

// Why the value of such a key, or of one below it, cannot be taken; empty where it asks for nothing, and for all other
// paths.
[[nodiscard]] std::string not_yet_refusal(std::string_view path, const Json& value);

// For a value that the key `path` of this version refused: what is to come, "; this version does not have ... yet", or
// empty.
[[nodiscard]] std::string not_yet_value(std::string_view path, const Json& value);

}  // namespace quench
