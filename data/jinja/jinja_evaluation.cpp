#include <algorithm>

#include "core/system/check.h"
#include "data/jinja/jinja_rendering.h"

namespace quench::jinja {
namespace {

constexpr std::string_view kGlobals[] = {"cycler", "dict", "joiner", "namespace", "raise_exception", "range"};
constexpr std::string_view kDate = "strftime_now";

bool less_or_equal(const Value& a, const Value& b) {
  return less(a, b) || equal(a, b);
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
    case ExpressionKind::list:
    case ExpressionKind::tuple: {
      List list;
      for (std::size_t i = 0; i < expression.operands.size(); ++i) list.push_back(operand(i));
      return {std::move(list), expression.kind == ExpressionKind::list ? SequenceKind::list : SequenceKind::tuple};
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
    check_key(key);
    map.set(key, evaluate(*expression.operands[i + 1], scope));
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
  if (slice.is_sequence()) meter_.step(slice.items().size());
  return slice;
}

Value Rendering::evaluate_unary(const Expression& expression, const Scope& scope) {
  const Value value = evaluate(*expression.operands[0], scope);
  if (expression.text == "not") return !value.truthy();
  QUENCH_CHECK(!value.is_undefined(), "'{}' is undefined", value.undefined_name());
  QUENCH_CHECK(value.is_number(), "{} of a value of type {}", expression.text, value.type_name());
  if (value.is_float()) return expression.text == "+" ? value : Value(-value.number());
  return expression.text == "+" ? Value(value.integer()) : apply_operator("-", std::int64_t{0}, value, meter_);
}

Value Rendering::evaluate_binary(const Expression& expression, const Scope& scope) {
  const std::string& symbol = expression.text;
  const Value left = evaluate(*expression.operands[0], scope);
  if (symbol == "and" && !left.truthy()) return left;
  if (symbol == "or" && left.truthy()) return left;
  const Value right = evaluate(*expression.operands[1], scope);
  if (symbol == "and" || symbol == "or") return right;
  line_ = expression.line;
  return apply_operator(symbol, left, right, meter_);
}

Value Rendering::evaluate_comparison(const Expression& expression, const Scope& scope) {
  Value left = evaluate(*expression.operands[0], scope);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.operands[i + 1], scope);
    const std::string& symbol = expression.operators[i];
    const bool holds = symbol == "=="       ? equal(left, right)
                       : symbol == "!="     ? !equal(left, right)
                       : symbol == "in"     ? contains(right, left)
                       : symbol == "not in" ? !contains(right, left)
                       : symbol == "<"      ? less(left, right)
                       : symbol == "<="     ? less_or_equal(left, right)
                       : symbol == ">"      ? less(right, left)
                                            : less_or_equal(right, left);
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

}  // namespace quench::jinja
