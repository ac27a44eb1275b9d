#include <algorithm>
#include <cmath>

#include "core/system/check.h"
#include "data/jinja/jinja_rendering.h"

namespace quench::jinja {
namespace {

constexpr std::string_view kGlobals[] = {"dict", "namespace", "raise_exception", "range"};
constexpr std::string_view kDate = "strftime_now";

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
  if (symbol == "**") return std::pow(a, b);
  QUENCH_CHECK(b != 0, "division by zero");
  if (symbol == "/") return a / b;
  if (symbol == "//") return std::floor(a / b);
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// Text times a number.
Value repeated(const std::string& text, std::int64_t count, Meter& meter) {
  std::string out;
  if (count <= 0 || text.empty()) return out;
  QUENCH_CHECK(count <= (std::int64_t{1} << 32), "the template makes too much text");
  meter.bytes(text.size() * static_cast<std::uint64_t>(count));
  for (std::int64_t i = 0; i < count; ++i) out += text;
  return out;
}

Value arithmetic(std::string_view symbol, const Value& a, const Value& b, Meter& meter) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return float_arithmetic(symbol, a.number(), b.number());
    return integer_arithmetic(symbol, a.integer(), b.integer());
  }
  if (symbol == "+" && a.is_string() && b.is_string()) {
    meter.bytes(a.string().size() + b.string().size());
    return a.string() + b.string();
  }
  if (symbol == "+" && a.is_list() && b.is_list()) {
    meter.step(a.list().size() + b.list().size());
    List list = a.list();
    list.insert(list.end(), b.list().begin(), b.list().end());
    return list;
  }
  if (symbol == "*" && a.is_string() && b.is_integer()) return repeated(a.string(), b.integer(), meter);
  if (symbol == "*" && a.is_integer() && b.is_string()) return repeated(b.string(), a.integer(), meter);
  QUENCH_CHECK_AS(ErrorCode::unsupported, symbol != "%" || !a.is_string(),
                  "formatting a string with '%' is not supported");
  fail_types(symbol, a, b);
}

std::string formatted(const std::tm& date, const std::string& format) {
  constexpr std::string_view kConversions = "aAbBdHIjmMpSyY%-";
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') continue;
    QUENCH_CHECK_AS(ErrorCode::unsupported,
                    i + 1 < format.size() && kConversions.find(format[i + 1]) != std::string_view::npos,
                    "strftime_now: the format '{}' is not supported", format);
    ++i;
  }
  char text[512] = {};
  const std::size_t length = std::strftime(text, sizeof(text), format.c_str(), &date);
  return {text, length};
}

}  // namespace

Value Rendering::look_up(const std::string& name, const Scope& scope) const {
  for (const Scope* at = &scope; at != nullptr; at = at->outer)
    for (const auto& [known, value] : at->variables)
      if (known == name) return value;
  if (const Value* value = variables_.find(name)) return *value;
  for (const std::string_view global : kGlobals)
    if (global == name) return Builtin{global};
  if (name == kDate && date_) return Builtin{kDate};
  return Undefined{name};
}

Value Rendering::evaluate(const Expression& expression, const Scope& scope) {
  const Level level(*this);
  line_ = std::max(expression.line, 1);
  meter_.step();
  const auto operand = [&](std::size_t i) { return evaluate(*expression.operands[i], scope); };
  switch (expression.kind) {
    case ExpressionKind::constant: return expression.value;
    case ExpressionKind::name: return look_up(expression.text, scope);
    case ExpressionKind::list: {
      List list;
      for (std::size_t i = 0; i < expression.operands.size(); ++i) list.push_back(operand(i));
      return list;
    }
    case ExpressionKind::map: return evaluate_map(expression, scope);
    case ExpressionKind::attribute: return attribute_of(operand(0), expression.text);
    case ExpressionKind::item: {
      const Value object = operand(0);
      return item_of(object, operand(1));
    }
    case ExpressionKind::slice: return evaluate_slice(expression, scope);
    case ExpressionKind::call: return evaluate_call(expression, scope);
    case ExpressionKind::filter: {
      const Value input = operand(0);
      const Arguments arguments = arguments_of(expression, expression.text, scope);
      line_ = expression.line;
      return apply_filter(expression.text, input, arguments, meter_);
    }
    case ExpressionKind::test: {
      const Value input = operand(0);
      return apply_test(expression.text, input, arguments_of(expression, expression.text, scope));
    }
    case ExpressionKind::unary: return evaluate_unary(expression, scope);
    case ExpressionKind::binary: return evaluate_binary(expression, scope);
    case ExpressionKind::comparison: return evaluate_comparison(expression, scope);
    case ExpressionKind::condition:
      if (operand(1).truthy()) return operand(0);
      return expression.operands[2] ? operand(2) : Value(Undefined{"the else of a condition"});
  }
  return {};
}

Value Rendering::evaluate_map(const Expression& expression, const Scope& scope) {
  Map map;
  for (std::size_t i = 0; i + 1 < expression.operands.size(); i += 2) {
    const Value key = evaluate(*expression.operands[i], scope);
    QUENCH_CHECK_AS(ErrorCode::unsupported, key.is_string(), "a mapping with a key of type {} is not supported",
                    key.type_name());
    Value value = evaluate(*expression.operands[i + 1], scope);
    const auto known = std::ranges::find(map.members, key.string(), [](const auto& member) { return member.first; });
    if (known != map.members.end())
      known->second = std::move(value);
    else
      map.members.emplace_back(key.string(), std::move(value));
  }
  return map;
}

Value Rendering::evaluate_slice(const Expression& expression, const Scope& scope) {
  const Value object = evaluate(*expression.operands[0], scope);
  Value bounds[3];
  for (std::size_t i = 0; i < 3; ++i)
    if (expression.operands[i + 1]) bounds[i] = evaluate(*expression.operands[i + 1], scope);
  Value slice = slice_of(object, &bounds[0], &bounds[1], &bounds[2]);
  if (slice.is_string()) meter_.bytes(slice.string().size());
  if (slice.is_list()) meter_.step(slice.list().size());
  return slice;
}

Arguments Rendering::arguments_of(const Expression& expression, std::string_view called, const Scope& scope) {
  Arguments arguments{.called = called};
  for (std::size_t i = 1; i < expression.operands.size(); ++i)
    arguments.values.push_back(evaluate(*expression.operands[i], scope));
  for (const auto& [keyword, value] : expression.keywords)
    arguments.keywords.emplace_back(keyword, evaluate(*value, scope));
  return arguments;
}

Value Rendering::evaluate_call(const Expression& expression, const Scope& scope) {
  const Expression& callee = *expression.operands[0];
  if (callee.kind == ExpressionKind::attribute) {
    const Value object = evaluate(*callee.operands[0], scope);
    // A mapping's methods go before its members, as attributes of Python objects do.
    if (has_method(object, callee.text))
      return call_method(object, callee.text, arguments_of(expression, callee.text, scope), meter_);
  }
  const Value function = evaluate(callee, scope);
  const std::string name = callee.text.empty() ? std::string(function.type_name()) : callee.text;
  const Arguments arguments = arguments_of(expression, name, scope);
  line_ = expression.line;
  if (function.macro() != nullptr) return call_macro(*function.macro(), arguments);
  if (!function.builtin().empty()) return call_builtin(function.builtin(), arguments);
  QUENCH_CHECK_AS(ErrorCode::unsupported, !function.is_undefined() || name != kDate,
                  "the template asks for today's date; name a fixed one, so that the tokens stay the same "
                  "(data.chat_date, --chat-date)");
  QUENCH_CHECK_AS(ErrorCode::unsupported, !function.is_undefined(), "the function '{}' is not supported", name);
  QUENCH_FAIL(ErrorCode::invalid_argument, "'{}' is a {}, not a function", name, function.type_name());
}

Value Rendering::call_builtin(std::string_view name, const Arguments& arguments) {
  if (name == "raise_exception") {
    arguments.check({"message"}, 1);
    QUENCH_FAIL(ErrorCode::invalid_argument, "the template refuses the conversation: {}",
                text_of(*arguments.find(0, "message")));
  }
  if (name == kDate) {
    arguments.check({"format"}, 1);
    return formatted(*date_, arguments.text(0, "format", ""));
  }
  if (name == "range") {
    arguments.check({"start", "stop", "step"}, 1);
    const bool one = arguments.values.size() == 1;
    const std::int64_t start = one ? 0 : arguments.integer(0, "start", 0);
    const std::int64_t stop = arguments.integer(one ? 0 : 1, "stop", 0), step = arguments.integer(2, "step", 1);
    constexpr std::int64_t kMaxItems = 100'000, kMaxNumber = std::int64_t{1} << 40;
    QUENCH_CHECK(
        step != 0 && std::abs(step) < kMaxNumber && std::abs(start) < kMaxNumber && std::abs(stop) < kMaxNumber,
        "range({}, {}, {})", start, stop, step);
    const std::int64_t count = step > 0 ? (stop - start + step - 1) / step : (start - stop - step - 1) / -step;
    QUENCH_CHECK(count <= kMaxItems, "a range of {} items; at most {}", count, kMaxItems);
    List list;
    for (std::int64_t i = 0; i < count; ++i) list.emplace_back(start + i * step);
    meter_.step(list.size());
    return list;
  }
  QUENCH_CHECK_AS(ErrorCode::unsupported, arguments.values.empty(), "{}: only arguments with names are supported",
                  name);
  Map map;
  for (const auto& [keyword, value] : arguments.keywords) map.members.emplace_back(keyword, value);
  if (name == "dict") return map;
  return &namespaces_.emplace_back(Namespace{std::move(map)});
}

Value Rendering::evaluate_unary(const Expression& expression, const Scope& scope) {
  const Value value = evaluate(*expression.operands[0], scope);
  if (expression.text == "not") return !value.truthy();
  QUENCH_CHECK(value.is_number(), "{} of a value of type {}", expression.text, value.type_name());
  if (expression.text == "+") return value;
  return value.is_float() ? Value(-value.number()) : integer_arithmetic("-", 0, value.integer());
}

Value Rendering::evaluate_binary(const Expression& expression, const Scope& scope) {
  const std::string& symbol = expression.text;
  const Value left = evaluate(*expression.operands[0], scope);
  if (symbol == "and" && !left.truthy()) return left;
  if (symbol == "or" && left.truthy()) return left;
  const Value right = evaluate(*expression.operands[1], scope);
  if (symbol == "and" || symbol == "or") return right;
  line_ = expression.line;
  if (symbol == "~") {
    std::string text = text_of(left) + text_of(right);
    meter_.bytes(text.size());
    return text;
  }
  return arithmetic(symbol, left, right, meter_);
}

Value Rendering::evaluate_comparison(const Expression& expression, const Scope& scope) {
  Value left = evaluate(*expression.operands[0], scope);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.operands[i + 1], scope);
    const std::string& symbol = expression.operators[i];
    if (symbol != "==" && symbol != "!=" && symbol != "in" && symbol != "not in")
      if (left.is_undefined() || right.is_undefined()) fail_types(symbol, left, right);
    const bool holds = symbol == "=="       ? equal(left, right)
                       : symbol == "!="     ? !equal(left, right)
                       : symbol == "in"     ? contains(right, left)
                       : symbol == "not in" ? !contains(right, left)
                       : symbol == "<"      ? less(left, right)
                       : symbol == "<="     ? !less(right, left)
                       : symbol == ">"      ? less(right, left)
                                            : !less(left, right);
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

}  // namespace quench::jinja
