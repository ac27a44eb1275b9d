#include "train/objectives/grpo/rewards/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace quench {
namespace {

constexpr std::array<std::string_view, 7> kTypes = {"null",   "boolean", "integer", "number",
                                                    "string", "array",   "object"};
constexpr std::array<std::string_view, 3> kNotes = {"title", "description", "$schema"};

template <class... Args>
[[noreturn]] void refuse(const std::string& place, std::string_view keyword, fmt::format_string<Args...> text,
                         Args&&... args) {
  QUENCH_FAIL(ErrorCode::bad_config, "{}: \"{}\" {}", place, keyword, fmt::format(text, std::forward<Args>(args)...));
}

std::int64_t count_of(const Json& value, const std::string& place, std::string_view keyword) {
  if (!value.is_integer() || value.as_double() < 0) refuse(place, keyword, "is {}, expected a count", value.dump());
  return value.as_int();
}

double number_of(const Json& value, const std::string& place, std::string_view keyword) {
  if (!value.is_number()) refuse(place, keyword, "is {}, expected a number", value.dump());
  return value.as_double();
}

std::vector<std::string> texts_of(const Json& value, const std::string& place, std::string_view keyword) {
  std::vector<std::string> texts;
  if (value.is_array())
    for (const Json& text : value.as_array())
      if (text.is_string()) texts.push_back(text.as_string());
  if (!value.is_array() || texts.size() != value.as_array().size())
    refuse(place, keyword, "is {}, expected a list of texts", value.dump());
  return texts;
}

// Characters of UTF-8.
std::int64_t characters_in(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

bool is_within(std::int64_t count, const std::optional<std::int64_t>& least, const std::optional<std::int64_t>& most) {
  return (!least || count >= *least) && (!most || count <= *most);
}

bool has_type(const Json& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_bool();
  if (type == "number") return value.is_number();
  if (type == "integer") return value.is_number() && std::floor(value.as_double()) == value.as_double();
  if (type == "string") return value.is_string();
  return type == "array" ? value.is_array() : value.is_object();
}

}  // namespace

JsonSchema::JsonSchema(const Json& schema, const std::string& place) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, schema.is_object(), "{} is {}, expected an object: a schema", place,
                  schema.type_name());
  for (const auto& [keyword, value] : schema.as_object())
    if (std::ranges::find(kNotes, keyword) == kNotes.end()) read(keyword, value, place);
}

void JsonSchema::read(const std::string& keyword, const Json& value, const std::string& place) {
  if (keyword == "type") {
    types_ = value.is_string() ? std::vector{value.as_string()} : texts_of(value, place, keyword);
    for (const std::string& type : types_)
      if (std::ranges::find(kTypes, type) == kTypes.end())
        refuse(place, keyword, "names {}, expected {}", type, fmt::join(kTypes, ", "));
  } else if (keyword == "properties") {
    if (!value.is_object()) refuse(place, keyword, "is {}, expected an object", value.type_name());
    for (const auto& [name, schema] : value.as_object())
      properties_.emplace_back(name,
                               std::make_unique<JsonSchema>(schema, fmt::format("{}/properties/{}", place, name)));
  } else if (keyword == "required") {
    required_ = texts_of(value, place, keyword);
  } else if (keyword == "additionalProperties") {
    if (!value.is_bool()) refuse(place, keyword, "is {}, expected true or false", value.type_name());
    others_ = value.as_bool();
  } else if (keyword == "items") {
    items_ = std::make_unique<JsonSchema>(value, place + "/items");
  } else if (keyword == "enum") {
    if (!value.is_array()) refuse(place, keyword, "is {}, expected a list", value.type_name());
    choices_ = value.as_array();
  } else if (keyword == "const") {
    choices_ = Json::Array{value};
  } else if (keyword == "minimum") {
    minimum_ = number_of(value, place, keyword);
  } else if (keyword == "maximum") {
    maximum_ = number_of(value, place, keyword);
  } else if (keyword == "minItems") {
    least_items_ = count_of(value, place, keyword);
  } else if (keyword == "maxItems") {
    most_items_ = count_of(value, place, keyword);
  } else if (keyword == "minLength") {
    least_length_ = count_of(value, place, keyword);
  } else if (keyword == "maxLength") {
    most_length_ = count_of(value, place, keyword);
  } else if (keyword == "pattern") {
    if (!value.is_string()) refuse(place, keyword, "is {}, expected a text", value.type_name());
    try {
      pattern_.emplace(value.as_string(), std::regex::ECMAScript);
    } catch (const std::regex_error& error) {
      refuse(place, keyword, "is no ECMAScript regular expression: {}", error.what());
    }
  } else {
    refuse(place, keyword,
           "is no keyword of the subset: type, properties, required, additionalProperties, items, enum, const, "
           "minimum, maximum, minItems, maxItems, minLength, maxLength, pattern");
  }
}

bool JsonSchema::accepts(const Json& value) const {
  if (!accepts_type(value)) return false;
  if (choices_ && std::ranges::none_of(*choices_, [&](const Json& choice) { return choice == value; })) return false;
  if (value.is_number())
    return (!minimum_ || value.as_double() >= *minimum_) && (!maximum_ || value.as_double() <= *maximum_);
  if (value.is_string()) return accepts_text(value.as_string());
  if (value.is_array()) return accepts_list(value.as_array());
  return !value.is_object() || accepts_object(value);
}

bool JsonSchema::accepts_type(const Json& value) const {
  return types_.empty() || std::ranges::any_of(types_, [&](const std::string& type) { return has_type(value, type); });
}

bool JsonSchema::accepts_text(const std::string& text) const {
  return is_within(characters_in(text), least_length_, most_length_) &&
         (!pattern_ || std::regex_search(text, *pattern_));
}

bool JsonSchema::accepts_list(const Json::Array& list) const {
  return is_within(std::ssize(list), least_items_, most_items_) &&
         (items_ == nullptr || std::ranges::all_of(list, [&](const Json& item) { return items_->accepts(item); }));
}

bool JsonSchema::accepts_object(const Json& object) const {
  for (const std::string& name : required_)
    if (object.find(name) == nullptr) return false;
  for (const auto& [name, value] : object.as_object()) {
    const auto known = std::ranges::find(properties_, name, [](const auto& property) { return property.first; });
    if (known == properties_.end() ? !others_ : !known->second->accepts(value)) return false;
  }
  return true;
}

}  // namespace quench
