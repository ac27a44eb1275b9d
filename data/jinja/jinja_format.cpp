#include "data/jinja/jinja_format.h"

#include <algorithm>

#include "core/system/check.h"
#include "data/jinja/jinja_functions.h"
#include "data/jinja/jinja_text.h"
#include "data/tokenizer/text/code_points.h"

namespace quench::jinja {
namespace {

constexpr std::int64_t kMaxWidth = 1 << 20;

// format % values.
class Printf {
 public:
  Printf(const Value& format, const Value& values, Meter& meter)
      : text_(format.string()), markup_(format.is_markup()), values_(values), meter_(meter) {}

  std::string run() {
    std::string out;
    for (std::size_t i = 0; i < text_.size();) {
      const std::size_t percent = std::min(text_.find('%', i), text_.size());
      out.append(text_, i, percent - i);
      if (percent == text_.size()) break;
      at_ = percent + 1;
      const std::string part = conversion();
      meter_.bytes(part.size());
      out += part;
      i = at_;
    }
    QUENCH_CHECK(named_ || values_.is_map() || next_ == (values_.is_tuple() ? values_.items().size() : 1) ||
                     (next_ == 0 && values_.is_list()),
                 "not all arguments are used by the format '{}'", text_);
    return out;
  }

 private:
  char peek() {
    QUENCH_CHECK(at_ < text_.size(), "the format '{}' ends within a conversion", text_);
    return text_[at_];
  }

  Value take_value() {
    if (!values_.is_tuple()) {
      QUENCH_CHECK(next_++ == 0, "too few arguments for the format '{}'", text_);
      return values_;
    }
    QUENCH_CHECK(next_ < values_.items().size(), "too few arguments for the format '{}'", text_);
    return values_.items()[next_++];
  }

  // Or '*' for the next argument.
  std::int64_t count() {
    if (peek() == '*') {
      ++at_;
      const Value value = take_value();
      QUENCH_CHECK(value.is_integer() || value.is_bool(), "'*' in a format takes an integer");
      QUENCH_CHECK(std::abs(value.integer()) <= kMaxWidth, "a width beyond {} in a format", kMaxWidth);
      return value.integer();
    }
    std::int64_t number = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      number = number * 10 + (peek() - '0');
      QUENCH_CHECK(number <= kMaxWidth, "a width beyond {} in a format", kMaxWidth);
    }
    return number;
  }

  std::string conversion() {
    FormatSpec spec{.align = '>'};
    std::string key;
    bool keyed = false;
    if (peek() == '(') {
      const std::size_t end = text_.find(')', at_);
      QUENCH_CHECK(end != std::string::npos, "the format '{}' has '(' without ')'", text_);
      key = text_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
      keyed = named_ = true;
    }
    bool left = false;
    for (; std::string_view("-+ #0").find(peek()) != std::string_view::npos; ++at_) {
      const char flag = peek();
      if (flag == '-') left = true;
      if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
      if (flag == '#') spec.alternate = true;
      if (flag == '0') spec.zero = true;
    }
    spec.width = count();
    if (spec.width < 0) {
      left = true;
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max<std::int64_t>(count(), 0);
    }
    while (std::string_view("hlL").find(peek()) != std::string_view::npos) ++at_;
    const char type = text_[at_];
    ++at_;
    if (type == '%') return "%";
    if (left) {
      spec.align = '<';
      spec.fill = " ";
    }
    return converted(keyed ? keyed_value(key) : take_value(), type, spec);
  }

  [[nodiscard]] Value keyed_value(const std::string& key) const {
    QUENCH_CHECK(values_.is_map(), "the format '{}' takes a mapping", text_);
    const Value* value = values_.map().find(key);
    QUENCH_CHECK(value != nullptr, "the format '{}': no key '{}'", text_, key);
    return *value;
  }

  [[nodiscard]] std::string converted(const Value& value, char type, FormatSpec spec) const {
    switch (type) {
      case 's':
      case 'r':
      case 'a': {
        std::string text = type == 's' ? text_of(value) : repr_of(value, type == 'a');
        if (markup_ && !(type == 's' && value.is_markup())) text = escape_html(text);
        return formatted(text, {.fill = " ", .align = spec.align, .width = spec.width, .precision = spec.precision});
      }
      case 'c': {
        std::string text;
        if (value.is_string() && character_count(value.string()) == 1)
          text = value.string();
        else if (value.is_integer() && value.integer() >= 0 && value.integer() < 0xD800)
          append_code_point(text, static_cast<char32_t>(value.integer()));
        else
          QUENCH_FAIL(ErrorCode::invalid_argument, "%c takes a character");
        return formatted(text, {.fill = " ", .align = spec.align, .width = spec.width});
      }
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X': {
        const bool whole = type == 'd' || type == 'i' || type == 'u';
        QUENCH_CHECK(value.is_number() && (whole || !value.is_float()), "%{} takes a number, not {}", type,
                     value.type_name());
        spec.type = whole ? 'd' : type;
        return integer(value.is_float() ? apply_filter("int", value, {}, meter_).integer() : value.integer(), spec);
      }
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        QUENCH_CHECK(value.is_number(), "%{} takes a number, not {}", type, value.type_name());
        spec.type = type;
        if (spec.zero && spec.align == '>') spec.align = '\0';
        return formatted(value, spec);
      default: QUENCH_FAIL(ErrorCode::invalid_argument, "the format '{}': '%{}' is not known", text_, type);
    }
  }

  // Precision: least digits.
  static std::string integer(std::int64_t value, FormatSpec spec) {
    const std::int64_t digits = std::exchange(spec.precision, -1);
    if (spec.zero && spec.align == '>') spec.align = '\0';
    if (digits < 0) return formatted(value, spec);
    FormatSpec inner = spec;
    inner.align = '\0';
    inner.fill.clear();
    inner.zero = true;
    inner.width = digits + (value < 0 || spec.sign != '-' ? 1 : 0) + (spec.alternate && spec.type != 'd' ? 2 : 0);
    return formatted(formatted(value, inner),
                     {.fill = spec.fill, .align = spec.align == '\0' ? '>' : spec.align, .width = spec.width});
  }

  const std::string& text_;
  const bool markup_;
  const Value& values_;
  Meter& meter_;
  std::size_t at_ = 0, next_ = 0;
  bool named_ = false;
};

// format.format(arguments).
class Formatter {
 public:
  Formatter(const Value& format, const Arguments& arguments, Meter& meter)
      : markup_(format.is_markup()), arguments_(arguments), meter_(meter) {}

  std::string run(const std::string& text, int depth) {
    QUENCH_CHECK(depth < 3, "replacement fields nested too deeply in the format '{}'", text);
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c != '{' && c != '}') {
        out += c;
        continue;
      }
      if (i + 1 < text.size() && text[i + 1] == c) {
        out += c;
        ++i;
        continue;
      }
      QUENCH_CHECK(c == '{', "the format '{}' has a single '}}'", text);
      std::size_t end = i + 1;
      for (int open = 1; end < text.size(); ++end) {
        open += text[end] == '{' ? 1 : text[end] == '}' ? -1 : 0;
        if (open == 0) break;
      }
      QUENCH_CHECK(end < text.size(), "the format '{}' has '{{' without '}}'", text);
      const std::string part = field(text.substr(i + 1, end - i - 1), depth);
      meter_.bytes(part.size());
      out += part;
      i = end;
    }
    return out;
  }

 private:
  std::string field(const std::string& text, int depth) {
    const std::size_t name_end = std::min(text.find_first_of("!:"), text.size());
    std::size_t at = name_end;
    char conversion = '\0';
    if (at < text.size() && text[at] == '!') {
      QUENCH_CHECK(at + 1 < text.size() && (at + 2 == text.size() || text[at + 2] == ':'),
                   "the field '{}' has no conversion of one letter", text);
      conversion = text[at + 1];
      at += 2;
    }
    Value value = look_up(text.substr(0, name_end));
    if (conversion == 'r' || conversion == 'a')
      value = Value(repr_of(value, conversion == 'a'));
    else if (conversion == 's')
      value = Value(text_of(value));
    else
      QUENCH_CHECK(conversion == '\0', "the field '{}' has an unknown conversion", text);
    const std::string spec = at < text.size() ? run(text.substr(at + 1), depth + 1) : "";
    const std::string out = formatted(value.is_undefined() ? Value("") : value, parse_format_spec(spec));
    return markup_ && !value.is_markup() ? escape_html(out) : out;
  }

  Value look_up(const std::string& path) {
    const std::size_t first = std::min(path.find_first_of(".["), path.size());
    const std::string name = path.substr(0, first);
    Value value;
    if (name.empty() || name.find_first_not_of("0123456789") == std::string::npos) {
      QUENCH_CHECK(automatic_ < 0 || (automatic_ == 1) == name.empty(),
                   "format: fields with and without numbers in one format");
      automatic_ = name.empty() ? 1 : 0;
      const std::size_t index = name.empty() ? next_++ : name.size() < 6 ? std::stoul(name) : arguments_.values.size();
      QUENCH_CHECK(index < arguments_.values.size(), "format: no argument {}", name);
      value = arguments_.values[index];
    } else {
      const auto found =
          std::ranges::find(arguments_.keywords, name, [](const auto& keyword) { return keyword.first; });
      QUENCH_CHECK(found != arguments_.keywords.end(), "format: no argument '{}'", name);
      value = found->second;
    }
    for (std::size_t at = first; at < path.size();) {
      const bool item = path[at] == '[';
      const std::size_t end = item ? path.find(']', at) : std::min(path.find_first_of(".[", at + 1), path.size());
      QUENCH_CHECK(end != std::string::npos, "the field '{}' has '[' without ']'", path);
      const std::string key = path.substr(at + 1, end - at - 1);
      const bool digits =
          item && !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
      value = !item ? attribute_of(value, key)
                    : item_of(value, digits ? Value(static_cast<std::int64_t>(std::stoll(key))) : Value(key));
      at = item ? end + 1 : end;
    }
    return value;
  }

  const bool markup_;
  const Arguments& arguments_;
  Meter& meter_;
  std::size_t next_ = 0;
  int automatic_ = -1;  // unnumbered fields: 1, numbered: 0; < 0: none yet
};

}  // namespace

std::string printf_text(const Value& format, const Value& values, Meter& meter) {
  return Printf(format, values, meter).run();
}

std::string format_text(const Value& format, const Arguments& arguments, Meter& meter) {
  return Formatter(format, arguments, meter).run(format.string(), 0);
}

}  // namespace quench::jinja
