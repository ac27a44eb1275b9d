#include <algorithm>
#include <cmath>

#include "core/system/check.h"
#include "data/jinja/jinja_format.h"
#include "data/jinja/jinja_text.h"

namespace quench::jinja {
namespace {

constexpr std::int64_t kMaxSpecWidth = 1 << 20, kMaxPrecision = 1 << 12;
constexpr std::string_view kAligns = "<>^=", kTypes = "bcdeEfFgGnosxX%";

std::int64_t read_count(std::string_view text, std::size_t& at) {
  std::int64_t count = -1;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    count = std::max<std::int64_t>(count, 0) * 10 + (text[at] - '0');
    QUENCH_CHECK(count <= kMaxSpecWidth, "a width beyond {} in the format '{}'", kMaxSpecWidth, text);
  }
  return count;
}

// Zero-padded to `width`.
std::string grouped(std::string digits, char separator, std::size_t group, std::size_t width) {
  std::size_t begin = 0;
  while (begin < digits.size() && std::isalnum(static_cast<unsigned char>(digits[begin])) != 0 && digits[begin] != 'e')
    ++begin;
  std::string whole = digits.substr(0, begin), rest = digits.substr(begin), out;
  const auto length = [&](std::size_t count) {
    return separator == '\0' || count == 0 ? count : count + (count - 1) / group;
  };
  while (length(whole.size()) + rest.size() < width) whole.insert(0, 1, '0');
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (separator != '\0' && i > 0 && (whole.size() - i) % group == 0) out += separator;
    out += whole[i];
  }
  return out + rest;
}

std::string float_digits(double magnitude, const FormatSpec& spec) {
  if (std::isnan(magnitude) || std::isinf(magnitude)) {
    std::string text = std::isnan(magnitude) ? "nan" : "inf";
    if (spec.type == 'E' || spec.type == 'F' || spec.type == 'G')
      std::ranges::transform(text, text.begin(), [](char c) { return static_cast<char>(c - 32); });
    return spec.type == '%' ? text + '%' : text;
  }
  const auto precision = static_cast<int>(spec.precision < 0 ? 6 : std::min(spec.precision, kMaxPrecision));
  const bool alternate = spec.alternate;
  switch (spec.type) {
    case 'e':
      return alternate ? fmt::format("{:#.{}e}", magnitude, precision) : fmt::format("{:.{}e}", magnitude, precision);
    case 'E':
      return alternate ? fmt::format("{:#.{}E}", magnitude, precision) : fmt::format("{:.{}E}", magnitude, precision);
    case 'f':
    case 'F':
      return alternate ? fmt::format("{:#.{}f}", magnitude, precision) : fmt::format("{:.{}f}", magnitude, precision);
    case '%': return fmt::format("{:.{}f}", magnitude * 100, precision) + '%';
    case 'g':
    case 'n':
    case 'G': {
      const int digits = std::max(precision, 1);
      const std::string text =
          alternate ? fmt::format("{:#.{}g}", magnitude, digits) : fmt::format("{:.{}g}", magnitude, digits);
      if (spec.type != 'G') return text;
      std::string upper = text;
      std::ranges::transform(upper, upper.begin(), [](char c) { return c == 'e' ? 'E' : c; });
      return upper;
    }
    default: break;
  }
  if (spec.precision < 0) return float_text(magnitude);
  // As 'g', with a digit after the point.
  std::string text = fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string integer_digits(std::uint64_t magnitude, const FormatSpec& spec, std::string& prefix) {
  QUENCH_CHECK(spec.precision < 0, "a precision for an integer in a format");
  switch (spec.type) {
    case 'b': prefix = spec.alternate ? "0b" : ""; return fmt::format("{:b}", magnitude);
    case 'o': prefix = spec.alternate ? "0o" : ""; return fmt::format("{:o}", magnitude);
    case 'x': prefix = spec.alternate ? "0x" : ""; return fmt::format("{:x}", magnitude);
    case 'X': prefix = spec.alternate ? "0X" : ""; return fmt::format("{:X}", magnitude);
    default: return std::to_string(magnitude);
  }
}

// With '=', the fill follows the first `sign` characters.
std::string aligned(const std::string& text, const FormatSpec& spec, char otherwise, std::size_t sign) {
  const std::size_t length = character_count(text), width = static_cast<std::size_t>(spec.width);
  if (length >= width) return text;
  const std::size_t missing = width - length;
  const std::string fill = !spec.fill.empty() ? spec.fill : spec.zero ? "0" : " ";
  const auto filled = [&](std::size_t count) {
    std::string out;
    for (std::size_t i = 0; i < count; ++i) out += fill;
    return out;
  };
  switch (spec.align != '\0' ? spec.align : otherwise) {
    case '<': return text + filled(missing);
    case '^': return filled(missing / 2) + text + filled(missing - missing / 2);
    case '=': return text.substr(0, sign) + filled(missing) + text.substr(sign);
    default: return filled(missing) + text;
  }
}

std::string formatted_number(const Value& value, const FormatSpec& spec) {
  const bool as_float = value.is_float() || std::string_view("eEfFgG%").find(spec.type) < 7;
  std::string prefix, digits;
  bool negative = false;
  if (as_float) {
    const double number = value.number();
    negative = std::signbit(number) && !std::isnan(number);
    digits = float_digits(std::abs(number), spec);
  } else {
    const std::int64_t number = value.integer();
    negative = number < 0;
    digits = integer_digits(negative ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number),
                            spec, prefix);
  }
  const std::string sign = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  const bool zeros = spec.fill.empty() && spec.zero && (spec.align == '\0' || spec.align == '=');
  const std::size_t group = spec.type == 'b' || spec.type == 'o' || spec.type == 'x' || spec.type == 'X' ? 4 : 3;
  const auto width = static_cast<std::size_t>(std::max<std::int64_t>(spec.width, 0));
  const std::size_t before = sign.size() + prefix.size();
  digits = grouped(std::move(digits), spec.grouping, group, zeros && width > before ? width - before : 0);
  return aligned(sign + prefix + digits, spec, '>', before);
}

}  // namespace

FormatSpec parse_format_spec(std::string_view text) {
  FormatSpec spec;
  const std::vector<std::string_view> characters = characters_of(text);
  std::size_t at = 0;
  if (characters.size() > 1 && characters[1].size() == 1 && kAligns.find(characters[1]) != std::string_view::npos) {
    spec.fill = characters[0];
    spec.align = characters[1][0];
    at = characters[0].size() + 1;
  } else if (!text.empty() && kAligns.find(text[0]) != std::string_view::npos) {
    spec.align = text[0];
    at = 1;
  }
  const auto take = [&](std::string_view among) {
    return at < text.size() && among.find(text[at]) != std::string_view::npos ? text[at++] : '\0';
  };
  if (const char sign = take("+- "); sign != '\0') spec.sign = sign;
  spec.alternate = take("#") != '\0';
  spec.zero = take("0") != '\0';
  spec.width = std::max<std::int64_t>(read_count(text, at), 0);
  spec.grouping = take(",_");
  if (take(".") != '\0') {
    spec.precision = read_count(text, at);
    QUENCH_CHECK(spec.precision >= 0, "the format '{}' has no precision after its point", text);
  }
  spec.type = take(kTypes);
  QUENCH_CHECK(at == text.size(), "the format '{}' is not known", text);
  return spec;
}

std::string formatted(const Value& value, const FormatSpec& spec) {
  const std::string_view types = value.is_string() ? "s" : value.is_float() ? "eEfFgGn%" : "bcdeEfFgGnoxX%";
  if (value.is_string() || value.is_number()) {
    QUENCH_CHECK(spec.type == '\0' || types.find(spec.type) != std::string_view::npos,
                 "the format code '{}' for a value of type {}", spec.type, value.type_name());
  } else {
    QUENCH_CHECK(spec.plain(), "a format for a value of type {}", value.type_name());
    return text_of(value);
  }
  if (value.is_bool() && spec.plain()) return text_of(value);
  if (value.is_number()) {
    QUENCH_CHECK_AS(ErrorCode::unsupported, spec.type != 'c', "the format code 'c' is not supported");
    return formatted_number(value, spec);
  }
  QUENCH_CHECK(spec.sign == '-' && !spec.alternate && spec.grouping == '\0' && spec.align != '=',
               "a sign, '#', '=' or grouping in the format of a string");
  std::string text = value.string();
  if (spec.precision >= 0 && static_cast<std::size_t>(spec.precision) < character_count(text)) {
    std::size_t end = 0;
    const std::vector<std::string_view> characters = characters_of(text);
    for (std::size_t i = 0; i < static_cast<std::size_t>(spec.precision); ++i) end += characters[i].size();
    text.resize(end);
  }
  return aligned(text, spec, '<', 0);
}

}  // namespace quench::jinja
