#include "data/jinja/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "core/system/check.h"
#include "data/tokenizer/text/code_points.h"

namespace quench::jinja {
namespace {

void check_depth(int depth) {
  QUENCH_CHECK(depth <= kMaxNesting, "a value is nested deeper than {} levels", kMaxNesting);
}

void check_size(const std::string& text) {
  QUENCH_CHECK(text.size() <= kMaxTextBytes, "the text of a value has more than {} bytes", kMaxTextBytes);
}

// Python's repr(float): the shortest digits that read back equal, with a point or an exponent.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// Python's repr(str) for the characters that occur in text.
std::string quoted(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\\' || c == quote) {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out += quote;
}

void append_repr(const Value& value, int depth, std::string& out);

void append_plain(const Value& value, int depth, std::string& out) {
  check_depth(depth);
  check_size(out);
  if (value.is_none()) {
    out += "None";
  } else if (value.is_bool()) {
    out += value.boolean() ? "True" : "False";
  } else if (value.is_integer()) {
    out += std::to_string(value.integer());
  } else if (value.is_float()) {
    out += float_text(value.number());
  } else if (value.is_string()) {
    out += value.string();
  } else if (value.is_list()) {
    out += '[';
    for (std::size_t i = 0; i < value.list().size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(value.list()[i], depth + 1, out);
    }
    out += ']';
  } else if (value.is_map()) {
    out += '{';
    bool first = true;
    for (const auto& [key, member] : value.map().members) {
      if (!first) out += ", ";
      first = false;
      out += quoted(key) + ": ";
      append_repr(member, depth + 1, out);
    }
    out += '}';
  } else if (!value.is_undefined()) {
    QUENCH_FAIL(ErrorCode::unsupported, "a {} as text", value.type_name());
  }
}

void append_repr(const Value& value, int depth, std::string& out) {
  if (value.is_string())
    out += quoted(value.string());
  else if (value.is_undefined())
    out += "Undefined";
  else
    append_plain(value, depth, out);
}

void append_json_string(const std::string& text, bool ascii, std::string& out) {
  out += '"';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '"': out += "\\\""; continue;
      case '\\': out += "\\\\"; continue;
      case '\n': out += "\\n"; continue;
      case '\r': out += "\\r"; continue;
      case '\t': out += "\\t"; continue;
      case '\b': out += "\\b"; continue;
      case '\f': out += "\\f"; continue;
      default: break;
    }
    if (byte < 0x20) {
      out += fmt::format("\\u{:04x}", byte);
    } else if (ascii && byte >= 0x80 && utf8_sequence_length(text, i) > 0) {
      const std::size_t length = utf8_sequence_length(text, i);
      const auto code = static_cast<std::uint32_t>(decode_code_point(text, i));
      if (code < 0x10000)
        out += fmt::format("\\u{:04x}", code);
      else
        out +=
            fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF));
      i += length - 1;
    } else {
      out += c;
    }
  }
  out += '"';
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, std::string& out) : style_(style), out_(out) {}

  void write(const Value& value, int depth) {
    check_depth(depth);
    check_size(out_);
    if (value.is_none()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.boolean() ? "true" : "false";
    } else if (value.is_integer()) {
      out_ += std::to_string(value.integer());
    } else if (value.is_float()) {
      const double number = value.number();
      out_ += std::isnan(number)   ? "NaN"
              : std::isinf(number) ? (number > 0 ? "Infinity" : "-Infinity")
                                   : float_text(number);
    } else if (value.is_string()) {
      append_json_string(value.string(), style_.ascii, out_);
    } else if (value.is_list()) {
      write_list(value.list(), depth);
    } else if (value.is_map()) {
      write_map(value.map(), depth);
    } else {
      QUENCH_FAIL(ErrorCode::invalid_argument, "a value of type {} has no JSON form", value.type_name());
    }
  }

 private:
  void new_line(int depth) {
    if (style_.indent < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(style_.indent) * static_cast<std::size_t>(depth), ' ');
  }
  void separate(bool first) {
    if (!first) out_ += style_.indent < 0 ? ", " : ",";
  }
  void write_list(const List& list, int depth) {
    out_ += '[';
    for (std::size_t i = 0; i < list.size(); ++i) {
      separate(i == 0);
      new_line(depth + 1);
      write(list[i], depth + 1);
    }
    if (!list.empty()) new_line(depth);
    out_ += ']';
  }
  void write_map(const Map& map, int depth) {
    std::vector<const std::pair<std::string, Value>*> members;
    for (const auto& member : map.members) members.push_back(&member);
    if (style_.sort_keys) std::ranges::stable_sort(members, {}, [](const auto* member) { return member->first; });
    out_ += '{';
    for (std::size_t i = 0; i < members.size(); ++i) {
      separate(i == 0);
      new_line(depth + 1);
      append_json_string(members[i]->first, style_.ascii, out_);
      out_ += ": ";
      write(members[i]->second, depth + 1);
    }
    if (!members.empty()) new_line(depth);
    out_ += '}';
  }

  const JsonStyle& style_;
  std::string& out_;
};

bool equal_parts(const Value& a, const Value& b, int depth, std::size_t& parts) {
  check_depth(depth);
  QUENCH_CHECK(++parts <= kMaxParts, "two values of more than {} parts are compared", kMaxParts);
  if (a.is_number() && b.is_number())
    return a.is_float() || b.is_float() ? a.number() == b.number() : a.integer() == b.integer();
  if (a.is_string() && b.is_string()) return a.string() == b.string();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_list() && b.is_list())
    return std::ranges::equal(a.list(), b.list(),
                              [&](const Value& x, const Value& y) { return equal_parts(x, y, depth + 1, parts); });
  if (a.is_map() && b.is_map()) {
    if (a.map().members.size() != b.map().members.size()) return false;
    return std::ranges::all_of(a.map().members, [&](const auto& member) {
      const Value* other = b.map().find(member.first);
      return other != nullptr && equal_parts(member.second, *other, depth + 1, parts);
    });
  }
  if (a.is_namespace() && b.is_namespace()) return a.name_space() == b.name_space();
  return a.macro() != nullptr && a.macro() == b.macro();
}

}  // namespace

const Value* Map::find(std::string_view key) const noexcept {
  for (const auto& [name, value] : members)
    if (name == key) return &value;
  return nullptr;
}

Value Value::from_json(const Json& json) {
  if (json.is_null()) return {};
  if (json.is_bool()) return json.as_bool();
  if (json.is_string()) return json.as_string();
  if (json.is_integer()) {
    try {
      return json.as_int();
    } catch (const Error&) {
      QUENCH_FAIL(ErrorCode::unsupported, "the integer {} is beyond 64 bits with a sign", json.dump());
    }
  }
  if (json.is_number()) return json.as_double();
  if (json.is_array()) {
    List list;
    for (const Json& item : json.as_array()) list.push_back(from_json(item));
    return list;
  }
  Map map;
  for (const auto& [key, item] : json.as_object()) map.members.emplace_back(key, from_json(item));
  return map;
}

const Macro* Value::macro() const noexcept {
  const auto* macro = std::get_if<const Macro*>(&value_);
  return macro != nullptr ? *macro : nullptr;
}

std::string_view Value::builtin() const noexcept {
  const auto* builtin = std::get_if<Builtin>(&value_);
  return builtin != nullptr ? builtin->name : std::string_view();
}

std::int64_t Value::integer() const {
  return is_bool() ? (boolean() ? 1 : 0) : std::get<std::int64_t>(value_);
}

double Value::number() const {
  return is_float() ? std::get<double>(value_) : static_cast<double>(integer());
}

bool Value::truthy() const noexcept {
  if (is_none() || is_undefined()) return false;
  if (is_bool()) return std::get<bool>(value_);
  if (is_integer()) return std::get<std::int64_t>(value_) != 0;
  if (is_float()) return std::get<double>(value_) != 0;
  if (is_string()) return !std::get<SharedString>(value_)->empty();
  if (is_list()) return !std::get<SharedList>(value_)->empty();
  if (is_map()) return !std::get<SharedMap>(value_)->members.empty();
  return true;
}

std::string_view Value::type_name() const noexcept {
  constexpr std::string_view kNames[] = {"none", "undefined", "boolean",   "integer", "float",   "string",
                                         "list", "mapping",   "namespace", "macro",   "function"};
  return kNames[value_.index()];
}

bool equal(const Value& a, const Value& b) {
  std::size_t parts = 0;
  return equal_parts(a, b, 0, parts);
}

std::string text_of(const Value& value) {
  std::string out;
  append_plain(value, 0, out);
  return out;
}

std::string json_text(const Value& value, const JsonStyle& style) {
  std::string out;
  JsonWriter(style, out).write(value, 0);
  return out;
}

}  // namespace quench::jinja
