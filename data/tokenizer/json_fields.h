#pragma once
// Small helpers for reading the JSON files of a tokenizer.

#include <string>
#include <string_view>

#include "core/json.h"
#include "core/utf8.h"

namespace quench {

// "line 12" for a parsed value.
inline std::string position(const Json& value) {
  return fmt::format("line {}", value.line());
}

// Text of a file for an error message: at most 200 bytes of it.
inline std::string shortened(std::string_view text) {
  constexpr std::size_t kShown = 200;
  return text.size() <= kShown ? std::string(text) : replace_invalid_utf8(text.substr(0, kShown)) + "...";
}

// The member `type` of a pipeline component.
inline const std::string& component_type(const Json& component) {
  return component.at("type").as_string();
}

// A member that may be absent or null.
inline const Json* optional_field(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

inline bool bool_field(const Json& object, std::string_view key, bool fallback) {
  const Json* value = optional_field(object, key);
  return value == nullptr ? fallback : value->as_bool();
}

}  // namespace quench
