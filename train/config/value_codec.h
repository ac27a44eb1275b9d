#pragma once
// Config value types to and from JSON. No implicit conversion (true is not 1, "3" is not 3), except of integers to
// floating-point numbers.

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json/json.h"
#include "core/system/enum_names.h"
#include "train/config/fields/field.h"

namespace quench {

using ReadError = std::optional<ValueError>;

// `3 (integer)`, `"3" (string)`, `null`, `an array`; truncated.
[[nodiscard]] std::string describe(const Json& value);
// "expected <type>, got <describe(value)>"
[[nodiscard]] ValueError wrong_value(const std::string& type, const Json& value, std::string suggestion = {});
[[nodiscard]] std::string join(const std::vector<std::string>& words, std::string_view separator = ", ");

// Codec<T> of a type under a rule:
//   type(rule)                 type name for messages and documents
//   kind                       parsing of override text
//   schema(rule)               JSON Schema
//   read(value, rule, target)  sets target and returns nullopt, or the error
//   write(value, rule)
template <class T>
struct Codec;

template <>
struct Codec<bool> {
  static constexpr ValueKind kind = ValueKind::boolean;
  static std::string type(const ValueRule& rule);
  static Json schema(const ValueRule& rule);
  static ReadError read(const Json& value, const ValueRule& rule, bool& target);
  static Json write(bool value, const ValueRule&) { return value; }
};

template <>
struct Codec<std::int64_t> {
  static constexpr ValueKind kind = ValueKind::number;
  static std::string type(const ValueRule& rule);
  static Json schema(const ValueRule& rule);
  static ReadError read(const Json& value, const ValueRule& rule, std::int64_t& target);
  static Json write(std::int64_t value, const ValueRule&) { return value; }
};

template <>
struct Codec<double> {
  static constexpr ValueKind kind = ValueKind::number;
  static std::string type(const ValueRule& rule);
  static Json schema(const ValueRule& rule);
  static ReadError read(const Json& value, const ValueRule& rule, double& target);
  static Json write(double value, const ValueRule&) { return value; }
};

template <>
struct Codec<std::string> {
  static constexpr ValueKind kind = ValueKind::text;
  static std::string type(const ValueRule& rule);
  static Json schema(const ValueRule& rule);
  static ReadError read(const Json& value, const ValueRule& rule, std::string& target);
  static Json write(const std::string& value, const ValueRule& rule);
};

template <>
struct Codec<std::vector<std::string>> {
  static constexpr ValueKind kind = ValueKind::text_list;
  static std::string type(const ValueRule& rule);
  static Json schema(const ValueRule& rule);
  static ReadError read(const Json& value, const ValueRule& rule, std::vector<std::string>& target);
  static Json write(const std::vector<std::string>& value, const ValueRule& rule);
};

template <>
struct Codec<std::array<double, 2>> {
  static constexpr ValueKind kind = ValueKind::number_list;
  static std::string type(const ValueRule& rule);
  static Json schema(const ValueRule& rule);
  static ReadError read(const Json& value, const ValueRule& rule, std::array<double, 2>& target);
  static Json write(const std::array<double, 2>& value, const ValueRule& rule);
};

template <>
struct Codec<std::vector<DataSource>> {
  static constexpr ValueKind kind = ValueKind::text_list;
  static std::string type(const ValueRule& rule);
  static Json schema(const ValueRule& rule);
  static ReadError read(const Json& value, const ValueRule& rule, std::vector<DataSource>& target);
  static Json write(const std::vector<DataSource>& value, const ValueRule& rule);
};

template <>
struct Codec<Json::Object> {
  static constexpr ValueKind kind = ValueKind::json;
  static std::string type(const ValueRule& rule);
  static Json schema(const ValueRule& rule);
  static ReadError read(const Json& value, const ValueRule& rule, Json::Object& target);
  static Json write(const Json::Object& value, const ValueRule&) { return value; }
};

template <>
struct Codec<ResumeFrom> {
  static constexpr ValueKind kind = ValueKind::text_or_number;
  static std::string type(const ValueRule& rule);
  static Json schema(const ValueRule& rule);
  static ReadError read(const Json& value, const ValueRule& rule, ResumeFrom& target);
  static Json write(const ResumeFrom& value, const ValueRule& rule);
};

template <>
struct Codec<DType> {
  static constexpr ValueKind kind = ValueKind::text;
  static std::string type(const ValueRule& rule);
  static Json schema(const ValueRule& rule);
  static ReadError read(const Json& value, const ValueRule& rule, DType& target);
  static Json write(DType value, const ValueRule& rule);
};

// Unset: the rule's unset_word.
template <>
struct Codec<std::optional<DType>> {
  static constexpr ValueKind kind = ValueKind::text;
  static std::string type(const ValueRule& rule);
  static Json schema(const ValueRule& rule);
  static ReadError read(const Json& value, const ValueRule& rule, std::optional<DType>& target);
  static Json write(std::optional<DType> value, const ValueRule& rule);
};

// Unset: null.
template <class T>
struct Codec<std::optional<T>> {
  static constexpr ValueKind kind = Codec<T>::kind;
  static std::string type(const ValueRule& rule) { return Codec<T>::type(rule) + " or null"; }
  static Json schema(const ValueRule& rule) {
    return Json(Json::Object{{"anyOf", Json::Array{Codec<T>::schema(rule), Json(Json::Object{{"type", "null"}})}}});
  }
  static ReadError read(const Json& value, const ValueRule& rule, std::optional<T>& target) {
    if (value.is_null()) {
      target.reset();
      return std::nullopt;
    }
    T read_value{};
    if (const ReadError error = Codec<T>::read(value, rule, read_value)) {
      return wrong_value(type(rule), value, error->suggestion);
    }
    target = read_value;
    return std::nullopt;
  }
  static Json write(const std::optional<T>& value, const ValueRule& rule) {
    return value ? Codec<T>::write(*value, rule) : Json();
  }
};

// core/system/enum_names.h.
template <class E>
requires std::is_enum_v<E>
struct Codec<E> {
  static constexpr ValueKind kind = ValueKind::text;

  static ValueRule name_rule() {
    ValueRule rule;
    rule.choices = enum_names<E>();
    return rule;
  }
  static std::string type(const ValueRule&) { return Codec<std::string>::type(name_rule()); }
  static Json schema(const ValueRule&) { return Codec<std::string>::schema(name_rule()); }
  static ReadError read(const Json& value, const ValueRule&, E& target) {
    std::string name;
    ReadError error = Codec<std::string>::read(value, name_rule(), name);
    if (error) return error;
    target = require_enum<E>(name, "value");
    return std::nullopt;
  }
  static Json write(E value, const ValueRule&) {
    for (const auto& [known, name] : EnumNames<E>::values) {
      if (known == value) return Json(name);
    }
    QUENCH_FAIL(ErrorCode::invalid_argument, "enum value {} has no name", static_cast<int>(value));
  }
};

}  // namespace quench
