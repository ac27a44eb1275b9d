#pragma once
// Pattern keys in the order of the file, values of one type: {"o_proj": 8, "*.layers.0.*": 4}; lists of integers.

#include "train/config/value_codec.h"

namespace quench {

template <class T>
struct Codec<std::vector<std::pair<std::string, T>>> {
  static constexpr ValueKind kind = ValueKind::json;
  static std::string type(const ValueRule& rule) { return "object of patterns, each with " + Codec<T>::type(rule); }
  static Json schema(const ValueRule& rule) {
    return Json(Json::Object{{"type", "object"}, {"additionalProperties", Codec<T>::schema(rule)}});
  }
  static ReadError read(const Json& value, const ValueRule& rule, std::vector<std::pair<std::string, T>>& target) {
    if (!value.is_object()) return wrong_value(type(rule), value);
    std::vector<std::pair<std::string, T>> result;
    for (const auto& [key, member] : value.as_object()) {
      T one{};
      if (ReadError error = Codec<T>::read(member, rule, one)) {
        error->reason = fmt::format("\"{}\": {}", key, error->reason);
        error->line = member.line();
        error->column = member.column();
        return error;
      }
      result.emplace_back(key, one);
    }
    target = std::move(result);
    return std::nullopt;
  }
  static Json write(const std::vector<std::pair<std::string, T>>& value, const ValueRule& rule) {
    Json object = Json::object();
    for (const auto& [key, one] : value) object.set(key, Codec<T>::write(one, rule));
    return object;
  }
};

template <>
struct Codec<std::vector<std::int64_t>> {
  static constexpr ValueKind kind = ValueKind::number_list;
  static std::string type(const ValueRule& rule) { return "list, each " + Codec<std::int64_t>::type(rule); }
  static Json schema(const ValueRule& rule) {
    return Json(Json::Object{{"type", "array"}, {"items", Codec<std::int64_t>::schema(rule)}});
  }
  static ReadError read(const Json& value, const ValueRule& rule, std::vector<std::int64_t>& target) {
    if (!value.is_array()) return wrong_value(type(rule), value);
    std::vector<std::int64_t> numbers;
    for (const Json& element : value.as_array())
      if (ReadError error = Codec<std::int64_t>::read(element, rule, numbers.emplace_back())) {
        error->reason = fmt::format("element {} of the list: {}", numbers.size(), error->reason);
        return error;
      }
    target = std::move(numbers);
    return std::nullopt;
  }
  static Json write(const std::vector<std::int64_t>& value, const ValueRule&) {
    Json list = Json::array();
    for (const std::int64_t number : value) list.push_back(number);
    return list;
  }
};

}  // namespace quench
