// Python semantics.

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/system/check.h"
#include "data/jinja/jinja_functions.h"

namespace quench::jinja {
namespace {

[[noreturn]] void fail_types(std::string_view symbol, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b})
    QUENCH_CHECK(!value->is_undefined(), "'{}' is undefined", value->undefined_name());
  QUENCH_FAIL(ErrorCode::invalid_argument, "{} {} {}: the types do not go together", a.type_name(), symbol,
              b.type_name());
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent && result != 0; ++i) {
    if (base == 1 || (base == -1 && i >= (exponent & 1))) break;
    QUENCH_CHECK(!__builtin_mul_overflow(result, base, &result), "a number beyond 64 bits");
  }
  return result;
}

Value integer_arithmetic(std::string_view symbol, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  if (symbol == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (symbol == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (symbol == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (symbol == "**") {
    QUENCH_CHECK(a != 0 || b >= 0, "division by zero");
    if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
    result = power(a, b);
  } else {
    QUENCH_CHECK(b != 0, "division by zero");
    if (symbol == "/") return static_cast<double>(a) / static_cast<double>(b);
    if (b == -1)
      overflow = symbol == "//" && __builtin_sub_overflow(std::int64_t{0}, a, &result);
    else
      result = symbol == "//" ? floor_divide(a, b) : a - floor_divide(a, b) * b;
  }
  QUENCH_CHECK(!overflow, "a number beyond 64 bits");
  return result;
}

Value float_arithmetic(std::string_view symbol, double a, double b) {
  if (symbol == "+") return a + b;
  if (symbol == "-") return a - b;
  if (symbol == "*") return a * b;
  if (symbol == "**") {
    QUENCH_CHECK(a != 0 || b >= 0, "division by zero");
    const double result = std::pow(a, b);
    QUENCH_CHECK(std::isfinite(result) || !std::isfinite(a) || !std::isfinite(b), "{} ** {} is no number", a, b);
    return result;
  }
  QUENCH_CHECK(b != 0, "division by zero");
  if (symbol == "/") return a / b;
  if (symbol == "//") return std::floor(a / b);
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

constexpr std::int64_t kMaxRepeats = std::int64_t{1} << 32;

// Text or list times a number.
Value repeated(const Value& value, std::int64_t count, Meter& meter) {
  count = std::max<std::int64_t>(count, 0);
  QUENCH_CHECK(count <= kMaxRepeats, "the template makes too much text");
  const auto times = static_cast<std::uint64_t>(count);
  if (value.is_string()) {
    std::string out;
    meter.bytes(value.string().size() * times);
    if (!value.string().empty())
      for (std::uint64_t i = 0; i < times; ++i) out += value.string();
    return Text{std::move(out), value.is_markup()};
  }
  List list;
  meter.step(value.items().size() * times);
  if (!value.items().empty())
    for (std::uint64_t i = 0; i < times; ++i) list.insert(list.end(), value.items().begin(), value.items().end());
  return {std::move(list), value.kind()};
}

bool repeats(const Value& value) {
  return value.is_string() || value.is_list() || value.is_tuple();
}

Value concatenated(const Value& a, const Value& b, Meter& meter) {
  meter.step(a.items().size() + b.items().size());
  List list = a.items();
  list.insert(list.end(), b.items().begin(), b.items().end());
  return {std::move(list), a.kind()};
}

}  // namespace

Value apply_operator(std::string_view symbol, const Value& a, const Value& b, Meter& meter) {
  if (symbol == "~") return made(text_of(a) + text_of(b), meter);
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return float_arithmetic(symbol, a.number(), b.number());
    return integer_arithmetic(symbol, a.integer(), b.integer());
  }
  if (symbol == "+" && a.is_string() && b.is_string()) {
    const bool markup = a.is_markup() || b.is_markup();
    return made(joined_text(a, markup) + joined_text(b, markup), meter, markup);
  }
  if (symbol == "+" && ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())))
    return concatenated(a, b, meter);
  const auto counts = [](const Value& value) { return value.is_integer() || value.is_bool(); };
  if (symbol == "*" && repeats(a) && counts(b)) return repeated(a, b.integer(), meter);
  if (symbol == "*" && counts(a) && repeats(b)) return repeated(b, a.integer(), meter);
  if (symbol == "%" && a.is_string()) return made(printf_text(a, b, meter), meter, a.is_markup());
  fail_types(symbol, a, b);
}

Value rounded(const Value& value, std::int64_t digits) {
  QUENCH_CHECK(value.is_number(), "round of a value of type {}", value.type_name());
  if (!value.is_float()) {
    if (digits >= 0) return value.integer();
    if (digits < -18) return std::int64_t{0};
    const std::int64_t unit = power(10, -digits), rest = value.integer() - floor_divide(value.integer(), unit) * unit;
    const std::int64_t down = value.integer() - rest;
    const bool up = rest * 2 > unit || (rest * 2 == unit && floor_divide(down, unit) % 2 != 0);
    return up ? integer_arithmetic("+", down, unit) : Value(down);
  }
  const double number = value.number();
  if (!std::isfinite(number) || digits > 323) return number;
  if (digits >= 0) return std::strtod(fmt::format("{:.{}f}", number, digits).c_str(), nullptr);
  if (digits < -308) return number < 0 ? -0.0 : 0.0;
  const double unit = std::pow(10.0, static_cast<double>(-digits)), quotient = number / unit;
  return std::nearbyint(quotient) * unit;
}

}  // namespace quench::jinja
