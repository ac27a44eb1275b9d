#pragma once
// A subset of JSON Schema (draft 2020-12): type, properties, required, additionalProperties (true or false), items,
// enum, const, minimum, maximum, minItems, maxItems, minLength, maxLength, pattern (ECMAScript); title, description and
// $schema are read over. Any other keyword is refused.

#include <cstdint>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "core/json/json.h"

namespace quench {

class JsonSchema {
 public:
  // Throws bad_config naming the keyword and its place, such as "#/properties/name".
  explicit JsonSchema(const Json& schema, const std::string& place = "#");

  // Whether the value satisfies all keywords. Lengths count characters; a number without fraction is an integer.
  [[nodiscard]] bool accepts(const Json& value) const;

 private:
  void read(const std::string& keyword, const Json& value, const std::string& place);
  [[nodiscard]] bool accepts_type(const Json& value) const;
  [[nodiscard]] bool accepts_text(const std::string& text) const;
  [[nodiscard]] bool accepts_list(const Json::Array& list) const;
  [[nodiscard]] bool accepts_object(const Json& object) const;

  std::vector<std::string> types_;  // empty: any
  std::vector<std::pair<std::string, std::unique_ptr<JsonSchema>>> properties_;
  std::vector<std::string> required_;
  bool others_ = true;  // properties besides properties_
  std::unique_ptr<JsonSchema> items_;
  std::optional<Json::Array> choices_;
  std::optional<double> minimum_, maximum_;
  std::optional<std::int64_t> least_items_, most_items_, least_length_, most_length_;
  std::optional<std::regex> pattern_;
};

}  // namespace quench
