// Python's str(), repr(), json.dumps().

#include <utf8proc.h>

#include <algorithm>
#include <cmath>

#include "core/system/check.h"
#include "data/jinja/jinja_functions.h"
#include "data/jinja/jinja_value.h"
#include "data/tokenizer/text/code_points.h"

namespace quench::jinja {
namespace {

void check_depth(int depth) {
  QUENCH_CHECK(depth <= kMaxNesting, "a value is nested deeper than {} levels", kMaxNesting);
}

void check_size(const std::string& text) {
  QUENCH_CHECK(text.size() <= kMaxTextBytes, "the text of a value has more than {} bytes", kMaxTextBytes);
}

// str.isprintable() above ASCII.
bool is_printable(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

void append_escape(std::string& out, std::uint32_t code) {
  out += code < 0x100     ? fmt::format("\\x{:02x}", code)
         : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                          : fmt::format("\\U{:08x}", code);
}

// Python's repr(str).
void append_quoted(const std::string& text, bool ascii, std::string& out) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  out += quote;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
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
      append_escape(out, byte);
    } else if (byte >= 0x80 && utf8_sequence_length(text, i) > 0) {
      const std::size_t length = utf8_sequence_length(text, i);
      const char32_t code = decode_code_point(text, i);
      if (ascii || !is_printable(code))
        append_escape(out, static_cast<std::uint32_t>(code));
      else
        out.append(text, i, length);
      i += length - 1;
    } else {
      out += c;
    }
  }
  out += quote;
}

class Printer {
 public:
  Printer(std::string& out, bool ascii) : out_(out), ascii_(ascii) {}

  void plain(const Value& value, int depth) {
    check_depth(depth);
    check_size(out_);
    if (value.is_none()) {
      out_ += "None";
    } else if (value.is_bool()) {
      out_ += value.boolean() ? "True" : "False";
    } else if (value.is_integer()) {
      out_ += std::to_string(value.integer());
    } else if (value.is_float()) {
      out_ += float_text(value.number());
    } else if (value.is_string()) {
      out_ += value.string();
    } else if (value.is_sequence()) {
      sequence(value, depth);
    } else if (value.is_map()) {
      out_ += '{';
      bool first = true;
      for (const auto& [key, member] : value.map().members) {
        if (!first) out_ += ", ";
        first = false;
        repr(key, depth + 1);
        out_ += ": ";
        repr(member, depth + 1);
      }
      out_ += '}';
    } else if (!value.is_undefined()) {
      QUENCH_FAIL(ErrorCode::unsupported, "a {} as text", value.type_name());
    }
  }

  void repr(const Value& value, int depth) {
    if (value.is_markup()) {
      out_ += "Markup(";
      append_quoted(value.string(), ascii_, out_);
      out_ += ')';
    } else if (value.is_string()) {
      append_quoted(value.string(), ascii_, out_);
    } else if (value.is_undefined()) {
      out_ += "Undefined";
    } else {
      plain(value, depth);
    }
  }

 private:
  void sequence(const Value& value, int depth) {
    const SequenceKind kind = value.kind();
    const bool view = kind == SequenceKind::keys || kind == SequenceKind::values || kind == SequenceKind::items;
    QUENCH_CHECK_AS(ErrorCode::unsupported, view || kind <= SequenceKind::group, "a {} as text", value.type_name());
    if (view)
      out_ += kind == SequenceKind::keys ? "dict_keys(" : kind == SequenceKind::values ? "dict_values(" : "dict_items(";
    const bool tuple = value.is_tuple();
    out_ += tuple ? '(' : '[';
    const List& items = value.items();
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += ", ";
      repr(items[i], depth + 1);
    }
    if (tuple && items.size() == 1) out_ += ',';
    out_ += tuple ? ')' : ']';
    if (view) out_ += ')';
  }

  std::string& out_;
  bool ascii_;
};

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
    if (value.is_string())
      append_json_string(value.string(), style_.ascii, out_);
    else if (value.is_list() || value.is_tuple())
      write_list(value.items(), depth);
    else if (value.is_map())
      write_map(value.map(), depth);
    else
      out_ += scalar(value);
  }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.boolean() ? "true" : "false";
    if (value.is_integer()) return std::to_string(value.integer());
    QUENCH_CHECK(value.is_float(), "a value of type {} has no JSON form", value.type_name());
    const double number = value.number();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
    return float_text(number);
  }
  void new_line(int depth) {
    if (!style_.lines) return;
    out_ += '\n';
    for (int i = 0; i < depth; ++i) out_ += style_.indent;
  }
  void write_list(const List& list, int depth) {
    out_ += '[';
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(depth + 1);
      write(list[i], depth + 1);
    }
    if (!list.empty()) new_line(depth);
    out_ += ']';
  }
  void write_map(const Map& map, int depth) {
    std::vector<const std::pair<Value, Value>*> members;
    for (const auto& member : map.members) members.push_back(&member);
    if (style_.sort_keys)
      std::ranges::stable_sort(members, [](const auto* a, const auto* b) { return less(a->first, b->first); });
    out_ += '{';
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(depth + 1);
      const Value& key = members[i]->first;
      append_json_string(key.is_string() ? key.string() : scalar(key), style_.ascii, out_);
      out_ += style_.key_separator;
      write(members[i]->second, depth + 1);
    }
    if (!members.empty()) new_line(depth);
    out_ += '}';
  }

  const JsonStyle& style_;
  std::string& out_;
};

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string text_of(const Value& value) {
  std::string out;
  Printer(out, false).plain(value, 0);
  return out;
}

std::string repr_of(const Value& value, bool ascii) {
  std::string out;
  Printer(out, ascii).repr(value, 0);
  return out;
}

std::string json_text(const Value& value, const JsonStyle& style) {
  std::string out;
  JsonWriter(style, out).write(value, 0);
  return out;
}

}  // namespace quench::jinja
