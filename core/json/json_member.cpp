#include "core/json/json_member.h"

namespace quench {

const Json* find_member(const Json& json, std::initializer_list<std::string_view> path) {
  const Json* value = &json;
  for (const std::string_view key : path) {
    value = value->is_object() ? value->find(key) : nullptr;
    if (value == nullptr) return nullptr;
  }
  return value->is_null() ? nullptr : value;
}

std::string find_text(const Json& json, std::initializer_list<std::string_view> path) {
  const Json* value = find_member(json, path);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

}  // namespace quench
