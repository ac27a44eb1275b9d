#pragma once
// Pattern keys, values of one type: {"o_proj": 8, "*.layers.0.*": 4}.

#include <map>

#include "train/config/value_codec.h"

namespace quench {

template <class T>
struct Codec<std::map<std::string, T>> {
  static constexpr ValueKind kind = ValueKind::json;
  static std::string type(const ValueRule& rule) { return "object of patterns, each with " + Codec<T>::type(rule); }
  static Json schema(const ValueRule& rule) {
    return Json(Json::Object{{"type", "object"}, {"additionalProperties", Codec<T>::schema(rule)}});
  }
  static ReadError read(const Json& value, const ValueRule& rule, std::map<std::string, T>& target) {
    if (!value.is_object()) return wrong_value(type(rule), value);
    std::map<std::string, T> result;
    for (const auto& [key, member] : value.as_object()) {
      T one{};
      if (ReadError error = Codec<T>::read(member, rule, one)) {
        error->reason = fmt::format("\"{}\": {}", key, error->reason);
        error->line = member.line();
        error->column = member.column();
        return error;
      }
      result.emplace(key, one);
    }
    target = std::move(result);
    return std::nullopt;
  }
  static Json write(const std::map<std::string, T>& value, const ValueRule& rule) {
    Json object = Json::object();
    for (const auto& [key, one] : value) object.set(key, Codec<T>::write(one, rule));
    return object;
  }
};

}  // namespace quench
