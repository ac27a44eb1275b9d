#pragma once
// Optional members of JSON documents of any content.

#include <initializer_list>
#include <string>
#include <string_view>

#include "core/json/json.h"

namespace quench {

// Member of nested objects, by the keys that lead to it: nullptr if one is absent or not an object, or for a null.
[[nodiscard]] const Json* find_member(const Json& json, std::initializer_list<std::string_view> path);

// Text of that member; empty if there is none or it is no string.
[[nodiscard]] std::string find_text(const Json& json, std::initializer_list<std::string_view> path);

}  // namespace quench
