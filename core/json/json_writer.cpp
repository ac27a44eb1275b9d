#include <array>
#include <charconv>
#include <cmath>

#include "core/json/json.h"
#include "core/system/utf8.h"

namespace quench {
namespace {

class Writer {
 public:
  explicit Writer(int indent) : indent_(indent) {}

  [[nodiscard]] std::string take() { return std::move(out_); }

  void value(const Json& json, std::size_t depth) {
    QUENCH_CHECK(depth <= Json::kMaxDepth, "Json::dump: nested deeper than {} levels", Json::kMaxDepth);
    if (json.is_null()) {
      out_ += "null";
    } else if (json.is_bool()) {
      out_ += json.as_bool() ? "true" : "false";
    } else if (json.is_integer()) {
      integer(json);
    } else if (json.is_number()) {
      real(json.as_double());
    } else if (json.is_string()) {
      string(json.as_string());
    } else if (json.is_array()) {
      list('[', ']', json.as_array(), depth, [&](const Json& item) { value(item, depth + 1); });
    } else {
      list('{', '}', json.as_object(), depth, [&](const Json::Member& member) {
        string(member.first);
        out_ += indent_ < 0 ? ":" : ": ";
        value(member.second, depth + 1);
      });
    }
  }

 private:
  template <class Number>
  std::string_view digits(Number number) {
    const auto [end, error] = std::to_chars(buffer_.data(), buffer_.data() + buffer_.size(), number);
    QUENCH_CHECK(error == std::errc{}, "Json::dump: a number does not fit {} characters", buffer_.size());
    return {buffer_.data(), static_cast<std::size_t>(end - buffer_.data())};
  }

  void integer(const Json& json) { out_ += json.as_double() < 0 ? digits(json.as_int()) : digits(json.as_uint()); }

  void real(double number) {
    if (!std::isfinite(number)) {
      out_ += "null";
      return;
    }
    const std::string_view text = digits(number);
    out_ += text;
    // Reals stay distinguishable from integers.
    if (text.find_first_of(".e") == std::string_view::npos) out_ += ".0";
  }

  void string(std::string_view text) {
    constexpr std::string_view kHex = "0123456789abcdef";
    out_ += '"';
    for (std::size_t i = 0; i < text.size();) {
      const char c = text[i];
      const std::size_t length = utf8_sequence_length(text, i);
      if (length == 0) {
        out_ += "\\ufffd";
        ++i;
        continue;
      }
      switch (c) {
        case '"': out_ += "\\\""; break;
        case '\\': out_ += "\\\\"; break;
        case '\b': out_ += "\\b"; break;
        case '\f': out_ += "\\f"; break;
        case '\n': out_ += "\\n"; break;
        case '\r': out_ += "\\r"; break;
        case '\t': out_ += "\\t"; break;
        default:
          if (length == 1 && c < 0x20) {
            out_ += "\\u00";
            out_ += kHex[static_cast<std::size_t>(c) >> 4];
            out_ += kHex[static_cast<std::size_t>(c) & 15];
          } else {
            out_ += text.substr(i, length);
          }
      }
      i += length;
    }
    out_ += '"';
  }

  template <class List, class Item>
  void list(char open, char close, const List& items, std::size_t depth, Item&& write) {
    out_ += open;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += ',';
      first = false;
      new_line(depth + 1);
      write(item);
    }
    if (!items.empty()) new_line(depth);
    out_ += close;
  }

  void new_line(std::size_t depth) {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(depth * static_cast<std::size_t>(indent_), ' ');
  }

  int indent_;
  std::string out_;
  std::array<char, 32> buffer_{};
};

}  // namespace

std::string Json::dump(int indent) const {
  Writer writer(indent);
  writer.value(*this, 0);
  return writer.take();
}

}  // namespace quench
