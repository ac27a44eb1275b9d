
#include <charconv>
#include <cmath>
#include <limits>

#include "core/system/check.h"
#include "data/jinja/jinja_filters.h"
#include "data/jinja/jinja_text.h"

namespace quench::jinja {
namespace {

constexpr double kBeyondIntegers = 9223372036854775808.0;

// As for int() and float(): stripped, without single underscores between digits; empty if no number.
std::string number_text(const std::string& text) {
  std::string out(strip(text, {}, StripSide::both));
  const auto alphanumeric = [&](std::size_t i) {
    return i < out.size() && std::isalnum(static_cast<unsigned char>(out[i])) != 0;
  };
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] != '_') continue;
    if (i == 0 || !alphanumeric(i - 1) || !alphanumeric(i + 1)) return {};
    out.erase(i, 1);
  }
  if (out.size() > 1 && out[0] == '+' && out[1] != '-' && out[1] != '+') out.erase(0, 1);
  return out;
}

bool read_float(const std::string& text, double& number) {
  const std::string digits = number_text(text);
  if (digits.empty() || digits[0] == '+') return false;
  // Without C's "nan(...)".
  if (digits.find('(') != std::string::npos) return false;
  const auto [stop, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (wrong == std::errc::result_out_of_range) number = std::strtod(digits.c_str(), nullptr);
  return (wrong == std::errc() || wrong == std::errc::result_out_of_range) && stop == digits.data() + digits.size();
}

bool read_integer(const std::string& text, std::int64_t base, std::int64_t& value) {
  std::string digits = number_text(text);
  const bool negative = digits.starts_with('-');
  if (negative) digits.erase(0, 1);
  if (base == 0 || base == 2 || base == 8 || base == 16)
    for (const auto& [letter, prefix_base] : {std::pair{'b', 2}, std::pair{'o', 8}, std::pair{'x', 16}})
      if (digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) == letter && (base == 0 || base == prefix_base)) {
        base = prefix_base;
        digits.erase(0, 2);
        break;
      }
  if (base == 0) base = 10;
  QUENCH_CHECK(base >= 2 && base <= 36, "int: a base of {}", base);
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return false;
  const std::string signed_digits = (negative ? "-" : "") + digits;
  const char* end = signed_digits.data() + signed_digits.size();
  const auto [stop, wrong] = std::from_chars(signed_digits.data(), end, value, static_cast<int>(base));
  QUENCH_CHECK_AS(ErrorCode::unsupported, wrong != std::errc::result_out_of_range || stop != end,
                  "the integer {} is beyond 64 bits with a sign", signed_digits);
  return wrong == std::errc() && stop == end;
}

// False where Python raises.
bool whole_number(double number, std::int64_t& value) {
  if (!std::isfinite(number)) return false;
  QUENCH_CHECK_AS(ErrorCode::unsupported, std::abs(number) < kBeyondIntegers,
                  "the integer {} is beyond 64 bits with a sign", number);
  value = static_cast<std::int64_t>(number);
  return true;
}

Value filter_int(const Value& input, const Arguments& a, Meter&) {
  a.check({"default", "base"});
  const Value otherwise = a.find(0, "default") != nullptr ? *a.find(0, "default") : Value(std::int64_t{0});
  if (input.is_integer() || input.is_bool()) return input.integer();
  std::int64_t value = 0;
  double number = 0;
  if (input.is_float()) return whole_number(input.number(), value) ? Value(value) : otherwise;
  if (input.is_undefined()) QUENCH_FAIL(ErrorCode::invalid_argument, "'{}' is undefined", input.undefined_name());
  if (!input.is_string()) return otherwise;
  if (read_integer(input.string(), a.integer(1, "base", 10), value)) return value;
  return read_float(input.string(), number) && whole_number(number, value) ? Value(value) : otherwise;
}

Value filter_float(const Value& input, const Arguments& a, Meter&) {
  a.check({"default"});
  const Value otherwise = a.find(0, "default") != nullptr ? *a.find(0, "default") : Value(0.0);
  if (input.is_number()) return input.number();
  if (input.is_undefined()) QUENCH_FAIL(ErrorCode::invalid_argument, "'{}' is undefined", input.undefined_name());
  double number = 0;
  return input.is_string() && read_float(input.string(), number) ? Value(number) : otherwise;
}

Value filter_abs(const Value& input, const Arguments& a, Meter&) {
  a.check({});
  QUENCH_CHECK(input.is_number(), "abs of a value of type {}", input.type_name());
  if (input.is_float()) return std::abs(input.number());
  QUENCH_CHECK(input.integer() != std::numeric_limits<std::int64_t>::min(), "abs: a number beyond 64 bits");
  return input.integer() < 0 ? -input.integer() : input.integer();
}

Value filter_round(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"precision", "method"});
  const std::int64_t precision = a.integer(0, "precision", 0);
  const std::string method = a.text(1, "method", "common");
  if (method == "common") return rounded(input, precision);
  QUENCH_CHECK(method == "ceil" || method == "floor", "round: the method '{}'; known: common, ceil, floor", method);
  QUENCH_CHECK(input.is_number(), "round of a value of type {}", input.type_name());
  const Value unit = apply_operator("**", std::int64_t{10}, precision, meter);
  const double scaled = apply_operator("*", input, unit, meter).number();
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit.number();
}

Value filter_filesizeformat(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"value", "binary"});
  const bool binary = a.values.empty() ? a.flag(0, "binary") : a.values[0].truthy();
  QUENCH_CHECK(input.is_number() || input.is_string(), "filesizeformat of a value of type {}", input.type_name());
  double size = 0;
  if (input.is_number())
    size = input.number();
  else
    QUENCH_CHECK(read_float(input.string(), size), "filesizeformat: '{}' is no number", input.string());
  const double base = binary ? 1024 : 1000;
  if (size == 1) return "1 Byte";
  if (size < base) return made(fmt::format("{} Bytes", static_cast<std::int64_t>(size)), meter);
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  for (std::size_t i = 0;; ++i) {
    const double unit = std::pow(base, static_cast<double>(i + 2));
    if (size >= unit && i + 1 < kPrefixes.size()) continue;
    const std::string prefix(1, binary && i == 0 ? 'K' : kPrefixes[i]);
    return made(fmt::format("{:.1f} {}{}B", base * size / unit, prefix, binary ? "i" : ""), meter);
  }
}

Value filter_default(const Value& input, const Arguments& a, Meter&) {
  a.check({"default_value", "boolean"});
  const bool replaced = input.is_undefined() || (a.flag(1, "boolean") && !input.truthy());
  if (!replaced) return input;
  const Value* other = a.find(0, "default_value");
  return other != nullptr ? *other : Value("");
}

// Never an item; of a mapping, its methods.
Value filter_attr(const Value& input, const Arguments& a, Meter&) {
  a.check({"name"}, 1);
  const std::string name = a.text(0, "name", "");
  if (input.is_map() && !has_method(input, name)) return Undefined{name};
  return attribute_of(input, name);
}

constexpr NamedFunction kNumberFilters[] = {
    {"abs", filter_abs},
    {"attr", filter_attr},
    {"d", filter_default},
    {"default", filter_default},
    {"filesizeformat", filter_filesizeformat},
    {"float", filter_float},
    {"int", filter_int},
    {"round", filter_round},
};

}  // namespace

std::span<const NamedFunction> number_filters() {
  return kNumberFilters;
}

}  // namespace quench::jinja
