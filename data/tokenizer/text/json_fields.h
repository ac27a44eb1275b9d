#pragma once
// Fields of a tokenizer.json, with errors that name line and component.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json/json.h"
#include "core/system/utf8.h"

namespace quench {

// "line 12".
inline std::string position(const Json& value) {
  return fmt::format("line {}", value.line());
}

// At most 200 bytes, for errors.
inline std::string shortened(std::string_view text) {
  constexpr std::size_t kShown = 200;
  return text.size() <= kShown ? std::string(text) : replace_invalid_utf8(text.substr(0, kShown)) + "...";
}

inline const std::string& component_type(const Json& component) {
  return component.at("type").as_string();
}

inline const Json* optional_field(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

// Pattern of a Replace; `what`: component in errors.
inline const std::string& fixed_pattern(const Json& component, std::string_view what) {
  const Json* pattern = component.at("pattern").find("String");
  QUENCH_CHECK_AS(ErrorCode::unsupported, pattern != nullptr && !pattern->as_string().empty(),
                  "{}: {}: {} of anything but a fixed string is not supported", position(component), what,
                  component_type(component));
  return pattern->as_string();
}

inline bool bool_field(const Json& object, std::string_view key, bool fallback) {
  const Json* value = optional_field(object, key);
  return value == nullptr ? fallback : value->as_bool();
}

enum class PrependScheme : std::uint8_t { first, never, always };

struct MetaspaceFields {
  std::string replacement;
  PrependScheme scheme = PrependScheme::always;
  bool split = true;
};

inline MetaspaceFields read_metaspace(const Json& component) {
  MetaspaceFields fields{.replacement = component.at("replacement").as_string(),
                         .split = bool_field(component, "split", true)};
  QUENCH_CHECK_AS(
      ErrorCode::corrupt,
      !fields.replacement.empty() && utf8_sequence_length(fields.replacement, 0) == fields.replacement.size(),
      "{}: Metaspace: the replacement \"{}\" is not one character", position(component), shortened(fields.replacement));
  if (const Json* scheme = optional_field(component, "prepend_scheme")) {
    const std::string& name = scheme->as_string();
    QUENCH_CHECK_AS(ErrorCode::unsupported, name == "first" || name == "never" || name == "always",
                    "{}: Metaspace: prepend_scheme {} is not supported; first, never and always are",
                    position(component), shortened(name));
    fields.scheme = name == "first"   ? PrependScheme::first
                    : name == "never" ? PrependScheme::never
                                      : PrependScheme::always;
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt,
                  bool_field(component, "add_prefix_space", true) || fields.scheme == PrependScheme::never,
                  "{}: Metaspace: add_prefix_space false contradicts the prepend_scheme", position(component));
  return fields;
}

}  // namespace quench
