#include "engine/grammar/schema_keywords.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/system/check.h"

namespace quench {
namespace {

using Keywords = std::span<const std::string_view>;

constexpr std::array<std::string_view, 14> kNotes = {"title",    "description", "default", "examples",    "$schema",
                                                     "$id",      "$comment",    "$defs",   "definitions", "deprecated",
                                                     "readOnly", "writeOnly",   "format",  "$anchor"};

// Keywords that decide alone, in the order in which the library looks for them.
constexpr std::array<std::string_view, 6> kDeciding = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};

constexpr std::array<std::string_view, 3> kOfString = {"pattern", "minLength", "maxLength"};
constexpr std::array<std::string_view, 5> kOfInteger = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                                        "multipleOf"};
constexpr std::array<std::string_view, 4> kOfNumber = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
constexpr std::array<std::string_view, 4> kOfArray = {"items", "prefixItems", "minItems", "maxItems"};
constexpr std::array<std::string_view, 5> kOfObject = {"properties", "required", "additionalProperties",
                                                       "minProperties", "maxProperties"};

struct TypeKeywords {
  std::string_view type;
  Keywords keywords;
};
constexpr std::array<TypeKeywords, 7> kTypes = {{{"null", {}},
                                                 {"boolean", {}},
                                                 {"integer", kOfInteger},
                                                 {"number", kOfNumber},
                                                 {"string", kOfString},
                                                 {"array", kOfArray},
                                                 {"object", kOfObject}}};

template <class... Args>
[[noreturn]] void refuse_keyword(const std::string& place, std::string_view keyword, fmt::format_string<Args...> text,
                                 Args&&... args) {
  QUENCH_FAIL(ErrorCode::bad_config, "the schema at {}: \"{}\" {}", place, keyword,
              fmt::format(text, std::forward<Args>(args)...));
}

bool contains(Keywords keywords, std::string_view name) {
  return std::ranges::find(keywords, name) != keywords.end();
}

bool is_of_type(const Json& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_bool();
  if (type == "number") return value.is_number();
  if (type == "integer") return value.is_number() && std::floor(value.as_double()) == value.as_double();
  if (type == "string") return value.is_string();
  return type == "array" ? value.is_array() : value.is_object();
}

const TypeKeywords& type_named(const Json& name, const std::string& place) {
  const auto* const found = name.is_string()
                                ? std::ranges::find(kTypes, std::string_view(name.as_string()), &TypeKeywords::type)
                                : kTypes.end();
  if (found == kTypes.end())
    refuse_keyword(place, "type", "is {}, expected null, boolean, integer, number, string, array, object", name.dump());
  return *found;
}

// Types that the schema names, or that its keywords stand for; none: any.
std::vector<const TypeKeywords*> types_of(const Json& schema, const std::string& place) {
  std::vector<const TypeKeywords*> types;
  if (const Json* type = schema.find("type"); type != nullptr) {
    if (!type->is_array()) return {&type_named(*type, place)};
    for (const Json& one : type->as_array()) types.push_back(&type_named(one, place));
    if (types.empty()) refuse_keyword(place, "type", "is an empty list");
    return types;
  }
  if (schema.find("properties") != nullptr || schema.find("additionalProperties") != nullptr) return {&kTypes[6]};
  if (schema.find("items") != nullptr || schema.find("prefixItems") != nullptr) return {&kTypes[5]};
  return {};
}

void check_place(const Json& schema, const std::string& place);

void check_map(const Json& schema, std::string_view keyword, const std::string& place) {
  const Json* map = schema.find(keyword);
  if (map == nullptr) return;
  if (!map->is_object()) refuse_keyword(place, keyword, "is {}, expected an object", map->type_name());
  for (const auto& [name, one] : map->as_object()) check_place(one, fmt::format("{}/{}/{}", place, keyword, name));
}

void check_list(const Json& schema, std::string_view keyword, const std::string& place) {
  const Json* list = schema.find(keyword);
  if (list == nullptr) return;
  if (!list->is_array() || list->as_array().empty()) refuse_keyword(place, keyword, "is no list of schemas");
  std::size_t index = 0;
  for (const Json& one : list->as_array()) check_place(one, fmt::format("{}/{}/{}", place, keyword, index++));
}

// Integers that the library would round.
bool has_large_integer(const Json& value) {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();
  if (value.is_integer()) return value.as_double() > 0 && value.as_uint() > kLargest;
  if (value.is_array()) return std::ranges::any_of(value.as_array(), has_large_integer);
  return value.is_object() && std::ranges::any_of(value.as_object(), [](const Json::Member& member) {
           return has_large_integer(member.second);
         });
}

// Next to const and enum, "type" repeats what their values are.
void check_values(const Json& schema, std::string_view keyword, const std::string& place) {
  const Json& value = *schema.find(keyword);
  if (has_large_integer(value)) refuse_keyword(place, keyword, "has an integer of 2^63 or more");
  const Json* type = schema.find("type");
  if (type == nullptr) return;
  const auto types = types_of(schema, place);
  const auto check = [&](const Json& one) {
    if (std::ranges::none_of(types, [&](const TypeKeywords* known) { return is_of_type(one, known->type); }))
      refuse_keyword(place, keyword, "has the value {}, which is not of \"type\" {}", one.dump(), type->dump());
  };
  if (keyword == "const") return check(value);
  if (value.is_array())
    for (const Json& one : value.as_array()) check(one);
}

void check_deciding(const Json& schema, std::string_view decides, const std::string& place) {
  const bool values = decides == "const" || decides == "enum";
  for (const auto& [keyword, value] : schema.as_object())
    if (keyword != decides && !contains(kNotes, keyword) && !(values && keyword == "type"))
      refuse_keyword(place, keyword, "stands next to \"{}\", which then decides alone: an answer would not keep to it",
                     decides);
  if (values) return check_values(schema, decides, place);
  if (decides == "$ref") {
    const Json& reference = *schema.find(decides);
    if (!reference.is_string() || !(reference.as_string() == "#" || reference.as_string().starts_with("#/")))
      refuse_keyword(place, decides, "is {}, expected a place within the schema, such as \"#/$defs/name\"",
                     reference.dump());
    return;
  }
  check_list(schema, decides, place);
  if (decides == "allOf" && schema.find(decides)->as_array().size() > 1)
    refuse_keyword(place, decides, "has several schemas: an answer can keep to one");
}

void check_object(const Json& schema, const std::string& place) {
  check_map(schema, "properties", place);
  const Json* others = schema.find("additionalProperties");
  if (others != nullptr && !others->is_bool()) check_place(*others, place + "/additionalProperties");
  const Json* required = schema.find("required");
  if (required == nullptr) return;
  if (!required->is_array()) refuse_keyword(place, "required", "is {}, expected a list", required->type_name());
  const Json* properties = schema.find("properties");
  for (const Json& name : required->as_array())
    if (!name.is_string() || properties == nullptr || properties->find(name.as_string()) == nullptr)
      refuse_keyword(place, "required", "names {}, which is not in \"properties\"", name.dump());
}

void check_string(const Json& schema, const std::string& place) {
  const Json* pattern = schema.find("pattern");
  if (pattern == nullptr) return;
  if (!pattern->is_string()) refuse_keyword(place, "pattern", "is {}, expected a text", pattern->type_name());
  for (const char* other : {"minLength", "maxLength", "format"})
    if (schema.find(other) != nullptr) refuse_keyword(place, other, "does not go with \"pattern\"");
  check_expression(pattern->as_string(), fmt::format("the schema at {}/pattern", place));
}

// Numbers of a range are written with at most six decimals.
void check_number(const Json& schema, const std::string& place) {
  constexpr double kSteps = 1e6;
  const auto bound = [&](const char* open, const char* closed, double nothing) {
    const Json *exclusive = schema.find(open), *inclusive = schema.find(closed);
    return std::pair(exclusive != nullptr && exclusive->is_number() ? exclusive->as_double() * kSteps : nothing,
                     inclusive != nullptr && inclusive->is_number() ? inclusive->as_double() * kSteps : nothing);
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto [above, least] = bound("exclusiveMinimum", "minimum", -kInfinity);
  const auto [below, most] = bound("exclusiveMaximum", "maximum", kInfinity);
  const double first = std::max(std::floor(above) + 1, std::ceil(least)),
               last = std::min(std::ceil(below) - 1, std::floor(most));
  if (first > last)
    refuse_keyword(place, below <= most ? "exclusiveMaximum" : "maximum",
                   "leaves no number of at most six decimals above the minimum");
}

// A schema is an object, or true: any value.
void check_place(const Json& schema, const std::string& place) {
  if (schema == Json(true)) return;
  QUENCH_CHECK_AS(ErrorCode::bad_config, schema.is_object(), "the schema at {} is {}, expected an object", place,
                  schema.is_bool() ? "false, which no value satisfies" : schema.type_name());
  check_map(schema, "$defs", place);
  check_map(schema, "definitions", place);
  for (const std::string_view decides : kDeciding)
    if (schema.find(decides) != nullptr) return check_deciding(schema, decides, place);
  const auto types = types_of(schema, place);
  for (const auto& [keyword, value] : schema.as_object()) {
    const std::string_view name = keyword;
    if (name == "type" || contains(kNotes, name)) continue;
    if (std::ranges::any_of(types, [&](const TypeKeywords* type) { return contains(type->keywords, name); })) continue;
    const bool known =
        std::ranges::any_of(kTypes, [&](const TypeKeywords& type) { return contains(type.keywords, name); });
    if (known)
      refuse_keyword(place, name, "needs a \"type\" that it belongs to");
    else
      refuse_keyword(place, name, "is a keyword that an answer cannot be kept to");
  }
  check_string(schema, place);
  if (std::ranges::any_of(types, [](const TypeKeywords* type) { return type->type == "number"; }))
    check_number(schema, place);
  if (const Json* items = schema.find("items"); items != nullptr && *items != Json(false))
    check_place(*items, place + "/items");
  check_list(schema, "prefixItems", place);
  check_object(schema, place);
}

// Number of characters of the repetition at the start of the text, 0 for none.
std::size_t repetition_length(std::string_view text) {
  if (text.empty()) return 0;
  if (text[0] == '*' || text[0] == '+' || text[0] == '?') return 1;
  constexpr std::size_t kLongest = 24;
  const std::size_t end = text[0] == '{' ? text.substr(0, kLongest).find('}') : std::string_view::npos;
  return end != std::string_view::npos ? end + 1 : 0;
}

}  // namespace

void check_schema(const Json& schema) {
  check_place(schema, "#");
}

void check_expression(std::string_view expression, const std::string& what) {
  constexpr int kMostNested = 2;
  // Deepest repetition within each open group.
  std::vector<int> open{0};
  for (std::size_t at = 0; at < expression.size(); ++at) {
    int depth = 0;
    if (expression[at] == '(') {
      open.push_back(0);
      continue;
    }
    if (expression[at] == '\\') {
      ++at;
    } else if (expression[at] == '[') {
      for (++at; at < expression.size() && expression[at] != ']'; ++at)
        if (expression[at] == '\\') ++at;
    } else if (expression[at] == ')' && open.size() > 1) {
      depth = open.back();
      open.pop_back();
    }
    if (at + 1 < expression.size())
      if (const std::size_t length = repetition_length(expression.substr(at + 1)); length > 0) {
        ++depth;
        at += length;
      }
    open.back() = std::max(open.back(), depth);
    QUENCH_CHECK_AS(ErrorCode::bad_config, open.back() <= kMostNested,
                    "{}: repetitions are nested more than {} deep at character {}", what, kMostNested, at + 1);
  }
}

}  // namespace quench
