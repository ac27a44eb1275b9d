#include "train/config/value_codec.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/system/nearest_name.h"
#include "data/hub/cache.h"

namespace quench {
namespace {

constexpr std::size_t kShownBytes = 80;

Json typed_schema(std::string_view type) {
  return Json(Json::Object{{"type", type}});
}

// 3 as "3", 0.5 as "0.5".
Json bound(double value) {
  const bool integral = value == std::floor(value) && std::abs(value) < 9007199254740992.0;
  return integral ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

std::string range_text(const ValueRule& rule) {
  if (rule.minimum && rule.maximum) {
    return fmt::format(" in {}{}, {}{}", rule.above_minimum ? '(' : '[', bound(*rule.minimum).dump(),
                       bound(*rule.maximum).dump(), rule.below_maximum ? ')' : ']');
  }
  if (rule.minimum) return fmt::format(" {} {}", rule.above_minimum ? ">" : ">=", bound(*rule.minimum).dump());
  if (rule.maximum) return fmt::format(" {} {}", rule.below_maximum ? "<" : "<=", bound(*rule.maximum).dump());
  return {};
}

Json range_schema(std::string_view type, const ValueRule& rule) {
  Json schema = typed_schema(type);
  if (rule.minimum) schema.set(rule.above_minimum ? "exclusiveMinimum" : "minimum", bound(*rule.minimum));
  if (rule.maximum) schema.set(rule.below_maximum ? "exclusiveMaximum" : "maximum", bound(*rule.maximum));
  return schema;
}

bool in_range(double value, const ValueRule& rule) {
  if (!std::isfinite(value)) return false;
  if (rule.minimum && (value < *rule.minimum || (rule.above_minimum && value == *rule.minimum))) return false;
  return !rule.maximum || (value <= *rule.maximum && !(rule.below_maximum && value == *rule.maximum));
}

Json list_schema(Json items) {
  return Json(Json::Object{{"type", "array"}, {"items", std::move(items)}});
}

ValueRule non_empty_strings(const ValueRule& rule) {
  ValueRule element = rule;
  element.nullable = false;
  return element;
}

}  // namespace

std::string describe(const Json& value) {
  if (value.is_array()) return fmt::format("an array of {}", value.as_array().size());
  if (value.is_object()) return "an object";
  if (value.is_null()) return "null";
  std::string text = value.dump();
  if (text.size() > kShownBytes) {
    std::size_t end = kShownBytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end) + "...";
  }
  return fmt::format("{} ({})", text, value.is_bool() ? "boolean" : value.type_name());
}

ValueError wrong_value(const std::string& type, const Json& value, std::string suggestion) {
  return {fmt::format("expected {}, got {}", type, describe(value)), std::move(suggestion), value.line(),
          value.column()};
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

std::string Codec<bool>::type(const ValueRule&) {
  return "boolean";
}
Json Codec<bool>::schema(const ValueRule&) {
  return typed_schema("boolean");
}
ReadError Codec<bool>::read(const Json& value, const ValueRule& rule, bool& target) {
  if (!value.is_bool()) return wrong_value(type(rule), value);
  target = value.as_bool();
  return std::nullopt;
}

std::string Codec<std::int64_t>::type(const ValueRule& rule) {
  return "integer" + range_text(rule);
}
Json Codec<std::int64_t>::schema(const ValueRule& rule) {
  return range_schema("integer", rule);
}
ReadError Codec<std::int64_t>::read(const Json& value, const ValueRule& rule, std::int64_t& target) {
  if (!value.is_integer() || !in_range(value.as_double(), rule)) return wrong_value(type(rule), value);
  if (value.as_double() >= 9223372036854775808.0) return wrong_value("integer below 2^63", value);
  target = value.as_int();
  return std::nullopt;
}

std::string Codec<double>::type(const ValueRule& rule) {
  return "number" + range_text(rule);
}
Json Codec<double>::schema(const ValueRule& rule) {
  return range_schema("number", rule);
}
ReadError Codec<double>::read(const Json& value, const ValueRule& rule, double& target) {
  if (!value.is_number() || !in_range(value.as_double(), rule)) return wrong_value(type(rule), value);
  target = value.as_double();
  return std::nullopt;
}

std::string Codec<std::string>::type(const ValueRule& rule) {
  const std::string base = rule.choices.empty() ? "non-empty string" : "one of " + join(rule.choices);
  return rule.nullable ? base + " or null" : base;
}
Json Codec<std::string>::schema(const ValueRule& rule) {
  Json schema = typed_schema("string");
  if (rule.choices.empty()) {
    schema.set("minLength", 1);
  } else {
    Json names = Json::array();
    for (const std::string& name : rule.choices) names.push_back(name);
    schema = Json(Json::Object{{"enum", std::move(names)}});
  }
  if (!rule.nullable) return schema;
  return Json(Json::Object{{"anyOf", Json::Array{std::move(schema), typed_schema("null")}}});
}
ReadError Codec<std::string>::read(const Json& value, const ValueRule& rule, std::string& target) {
  if (value.is_null() && rule.nullable) {
    target.clear();
    return std::nullopt;
  }
  if (!value.is_string()) return wrong_value(type(rule), value);
  const std::string& text = value.as_string();
  if (!rule.choices.empty()) {
    if (std::find(rule.choices.begin(), rule.choices.end(), text) == rule.choices.end())
      return wrong_value(type(rule), value, nearest_name(text, rule.choices));
  } else if (text.empty() || text.find('\0') != std::string::npos) {
    return wrong_value(type(rule), value);
  }
  target = rule.is_path ? hub::local_path(text) : text;
  return std::nullopt;
}
Json Codec<std::string>::write(const std::string& value, const ValueRule& rule) {
  return value.empty() && rule.nullable ? Json() : Json(value);
}

std::string Codec<std::vector<std::string>>::type(const ValueRule& rule) {
  if (rule.or_one) return "non-empty string or list of strings";
  return rule.choices.empty() ? "list of strings" : fmt::format("list of {}", fmt::join(rule.choices, ", "));
}
Json Codec<std::vector<std::string>>::schema(const ValueRule& rule) {
  const Json one = Codec<std::string>::schema(non_empty_strings(rule));
  return rule.or_one ? Json(Json::Object{{"anyOf", Json::Array{one, list_schema(one)}}}) : list_schema(one);
}
ReadError Codec<std::vector<std::string>>::read(const Json& value, const ValueRule& rule,
                                                std::vector<std::string>& target) {
  if (rule.or_one && value.is_string()) return read(Json(Json::Array{value}), rule, target);
  if (!value.is_array()) return wrong_value(type(rule), value);
  std::vector<std::string> words;
  for (const Json& element : value.as_array()) {
    if (ReadError error = Codec<std::string>::read(element, non_empty_strings(rule), words.emplace_back())) {
      error->reason = fmt::format("element {} of the list: {}", words.size(), error->reason);
      return error;
    }
  }
  target = std::move(words);
  return std::nullopt;
}
Json Codec<std::vector<std::string>>::write(const std::vector<std::string>& value, const ValueRule&) {
  Json list = Json::array();
  for (const std::string& word : value) list.push_back(word);
  return list;
}

std::string Codec<std::array<double, 2>>::type(const ValueRule& rule) {
  return "list of two numbers" + range_text(rule);
}
Json Codec<std::array<double, 2>>::schema(const ValueRule& rule) {
  Json schema = list_schema(Codec<double>::schema(rule));
  schema.set("minItems", 2);
  schema.set("maxItems", 2);
  return schema;
}
ReadError Codec<std::array<double, 2>>::read(const Json& value, const ValueRule& rule, std::array<double, 2>& target) {
  if (!value.is_array() || value.as_array().size() != 2) return wrong_value(type(rule), value);
  std::array<double, 2> numbers{};
  for (std::size_t i = 0; i < 2; ++i) {
    if (ReadError error = Codec<double>::read(value.as_array()[i], rule, numbers[i])) {
      error->reason = fmt::format("element {} of the list: {}", i + 1, error->reason);
      return error;
    }
  }
  target = numbers;
  return std::nullopt;
}
Json Codec<std::array<double, 2>>::write(const std::array<double, 2>& value, const ValueRule&) {
  return Json(Json::Array{Json(value[0]), Json(value[1])});
}

std::string Codec<DType>::type(const ValueRule& rule) {
  return Codec<std::string>::type(rule);
}
Json Codec<DType>::schema(const ValueRule& rule) {
  return Codec<std::string>::schema(rule);
}
ReadError Codec<DType>::read(const Json& value, const ValueRule& rule, DType& target) {
  std::string name;
  if (ReadError error = Codec<std::string>::read(value, rule, name)) {
    if (const auto dtype = value.is_string() ? dtype_from_string(value.as_string()) : std::nullopt) {
      const std::string known(to_string(*dtype));
      if (std::find(rule.choices.begin(), rule.choices.end(), known) != rule.choices.end()) error->suggestion = known;
    }
    return error;
  }
  target = *dtype_from_string(name);
  return std::nullopt;
}
Json Codec<DType>::write(DType value, const ValueRule&) {
  return Json(to_string(value));
}

namespace {

ValueRule with_unset_word(const ValueRule& rule) {
  ValueRule all = rule;
  all.choices.push_back(rule.unset_word);
  return all;
}

}  // namespace

std::string Codec<std::optional<DType>>::type(const ValueRule& rule) {
  return Codec<std::string>::type(with_unset_word(rule));
}
Json Codec<std::optional<DType>>::schema(const ValueRule& rule) {
  return Codec<std::string>::schema(with_unset_word(rule));
}
ReadError Codec<std::optional<DType>>::read(const Json& value, const ValueRule& rule, std::optional<DType>& target) {
  if (value.is_string() && value.as_string() == rule.unset_word) {
    target.reset();
    return std::nullopt;
  }
  DType dtype{};
  if (ReadError error = Codec<DType>::read(value, rule, dtype)) {
    if (error->suggestion.empty() && value.is_string())
      error->suggestion = nearest_name(value.as_string(), with_unset_word(rule).choices);
    error->reason = wrong_value(type(rule), value).reason;
    return error;
  }
  target = dtype;
  return std::nullopt;
}
Json Codec<std::optional<DType>>::write(std::optional<DType> value, const ValueRule& rule) {
  return value ? Json(to_string(*value)) : Json(rule.unset_word);
}

}  // namespace quench
