#include "train/config/override.h"

#include <algorithm>
#include <optional>

#include "core/system/nearest_name.h"
#include "train/config/fields/field.h"
#include "train/config/value_codec.h"

namespace quench {
namespace {

std::optional<Json> parse_json(std::string_view text) {
  try {
    return Json::parse(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Positions in an argument are not file positions.
void clear_positions(Json& value) {
  value.set_position(0, 0);
  if (value.is_array()) {
    for (Json& element : value.as_array()) clear_positions(element);
  } else if (value.is_object()) {
    for (auto& [key, member] : value.as_object()) clear_positions(member);
  }
}

Json number_or_text(std::string_view text) {
  std::optional<Json> value = parse_json(text);
  return value && value->is_number() ? *value : Json(text);
}

Json split_list(std::string_view text, bool numbers) {
  Json list = Json::array();
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view element = text.substr(0, comma);
    list.push_back(numbers ? number_or_text(element) : Json(element));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return list;
}

// Unparsable text stays a string, for the field to reject. Throws the parser's error for an invalid JSON list, object
// or quoted string.
Json value_from_text(const Field& field, std::string_view text) {
  if (text == "null" && field.nullable) return {};
  const char first = text.empty() ? '\0' : text.front();
  const bool list = field.kind == ValueKind::text_list || field.kind == ValueKind::number_list;
  if (first == '"' || ((first == '[' || first == '{') && (list || field.kind == ValueKind::json)))
    return Json::parse(text, {.source = "value"});
  switch (field.kind) {
    case ValueKind::boolean:
      if (text == "true") return true;
      if (text == "false") return false;
      return Json(text);
    case ValueKind::number:
    case ValueKind::text_or_number: return number_or_text(text);
    case ValueKind::text: return Json(text);
    case ValueKind::text_list: return split_list(text, false);
    case ValueKind::number_list: return split_list(text, true);
    case ValueKind::json: {
      std::optional<Json> value = parse_json(text);
      return value ? *value : Json(text);
    }
  }
  QUENCH_FAIL(ErrorCode::invalid_argument, "config field {}: unknown value kind", field.path);
}

std::vector<std::string_view> split_path(std::string_view path) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

constexpr std::string_view kUnset = "--unset";

bool is_override(std::string_view argument) {
  return argument.starts_with('~') || (argument.starts_with("--") && argument.size() > 2);
}

// The value of a "--" override is the next argument.
bool takes_next(std::string_view argument, const std::string* next) {
  if (next == nullptr || argument.find('=') != std::string_view::npos) return false;
  const std::string_view path = argument.substr(2);
  const Field* field = find_field(path);
  if (field != nullptr && field->kind == ValueKind::boolean) return *next == "true" || *next == "false";
  if (field == nullptr && path.starts_with("no-")) return false;
  return !next->starts_with("--") && !next->starts_with('~');
}

bool is_section(const std::string& path) {
  const auto& sections = section_names();
  return std::find(sections.begin(), sections.end(), path) != sections.end();
}

class Overrider {
 public:
  Overrider(Json& document, std::map<std::string, std::string>& origins) : document_(document), origins_(origins) {}

  void apply(std::span<const std::string> arguments) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::string& argument = arguments[i];
      if (!is_override(argument)) {
        report(argument, "",
               "not an override: expected --section.key=value, --section.key value or --unset=section.key");
        continue;
      }
      if (argument.front() == '~') {
        remove(argument, argument.substr(1));
        continue;
      }
      const std::string* next = i + 1 < arguments.size() ? &arguments[i + 1] : nullptr;
      const bool has_next = takes_next(argument, next);
      if (argument == kUnset || argument.starts_with("--unset=")) {
        unset(argument, has_next ? next : nullptr);
      } else {
        set(argument, has_next ? next : nullptr);
      }
      i += has_next ? 1 : 0;
    }
  }

  [[nodiscard]] std::vector<ConfigIssue> take_issues() { return std::move(issues_); }

 private:
  // `next`: value as a separate argument, or null.
  void set(const std::string& argument, const std::string* next) {
    const std::size_t equals = argument.find('=');
    const bool has_value = equals != std::string::npos;
    const std::string path = argument.substr(2, has_value ? equals - 2 : std::string::npos);
    const Field* field = find_field(path);
    if (field == nullptr) {
      set_unknown(argument, path, has_value);
    } else if (has_value) {
      store_text(*field, std::string_view(argument).substr(equals + 1), argument);
    } else if (field->kind == ValueKind::boolean) {
      store(*field, next == nullptr || *next == "true", argument);
    } else if (next == nullptr) {
      report(argument, path, fmt::format("needs a value: --{}=VALUE ({})", path, field->type));
    } else {
      store_text(*field, *next, argument + " " + *next);
    }
  }

  // --no-section.flag, or an unknown name.
  void set_unknown(const std::string& argument, const std::string& path, bool has_value) {
    const std::string flag = path.starts_with("no-") ? path.substr(3) : "";
    const Field* negated = find_field(flag);
    if (negated == nullptr) {
      report_unknown(argument, path);
    } else if (has_value) {
      report(argument, flag, "--no-... takes no value");
    } else if (negated->kind != ValueKind::boolean) {
      report(argument, flag, "--no-... is for keys that hold a boolean");
    } else {
      store(*negated, false, argument);
    }
  }

  // --unset=KEY,KEY or --unset KEY
  void unset(const std::string& argument, const std::string* next) {
    const std::string keys = argument == kUnset ? (next == nullptr ? "" : *next) : argument.substr(kUnset.size() + 1);
    if (keys.empty()) report(argument, "", "needs a key: --unset=section.key");
    const Json list = split_list(keys, false);
    for (const Json& key : list.as_array())
      remove(next == nullptr ? argument : argument + " " + *next, key.as_string());
  }

  void remove(const std::string& argument, const std::string& path) {
    if (!is_section(path) && find_field(path) == nullptr) {
      report_unknown(argument, path);
      return;
    }
    Json* parent = &document_;
    const std::vector<std::string_view> parts = split_path(path);
    for (std::size_t i = 0; i + 1 < parts.size() && parent != nullptr; ++i)
      parent = parent->is_object() ? parent->find(parts[i]) : nullptr;
    if (parent != nullptr && parent->is_object()) parent->erase(parts.back());
    std::erase_if(origins_,
                  [&](const auto& origin) { return origin.first == path || origin.first.starts_with(path + "."); });
  }

  void store_text(const Field& field, std::string_view text, const std::string& argument) {
    try {
      Json value = value_from_text(field, text);
      clear_positions(value);
      store(field, std::move(value), argument);
    } catch (const Error& error) {
      report(argument, field.path, error.what());
    }
  }

  void store(const Field& field, Json value, const std::string& argument) {
    Json* parent = &document_;
    const std::vector<std::string_view> parts = split_path(field.path);
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      if (!parent->is_object()) return;  // reported by the reader
      Json* child = parent->find(parts[i]);
      if (child == nullptr || child->is_null()) child = &parent->set(parts[i], Json::object());
      parent = child;
    }
    if (!parent->is_object()) return;
    parent->set(parts.back(), std::move(value));
    origins_[field.path] = argument;
  }

  void report_unknown(const std::string& argument, const std::string& path) {
    if (is_section(path)) {
      report(argument, path, fmt::format("is a section; set one of its keys, --{}.KEY=VALUE", path));
      return;
    }
    const bool negated = path.starts_with("no-");
    auto [reason, nearest] = explain_unknown_key(negated ? std::string_view(path).substr(3) : path);
    issues_.push_back({argument, path, reason, negated && !nearest.empty() ? "no-" + nearest : nearest});
  }

  void report(const std::string& argument, const std::string& key, std::string reason) {
    issues_.push_back({argument, key, std::move(reason), ""});
  }

  Json& document_;
  std::map<std::string, std::string>& origins_;
  std::vector<ConfigIssue> issues_;
};

}  // namespace

SplitArguments split_arguments(std::span<const std::string> arguments) {
  SplitArguments result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!is_override(argument) && !argument.starts_with('-')) {
      result.words.push_back(argument);
      continue;
    }
    result.overrides.push_back(argument);
    const std::string* next = i + 1 < arguments.size() ? &arguments[i + 1] : nullptr;
    if (argument.starts_with("--") && argument.size() > 2 && takes_next(argument, next)) {
      result.overrides.push_back(*next);
      ++i;
    }
  }
  return result;
}

std::vector<ConfigIssue> apply_overrides(Json& document, std::span<const std::string> arguments,
                                         std::map<std::string, std::string>& origins) {
  Overrider overrider(document, origins);
  overrider.apply(arguments);
  return overrider.take_issues();
}

}  // namespace quench
