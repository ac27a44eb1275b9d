// Calls of macros, methods, loops and global functions.

#include <algorithm>

#include "core/system/check.h"
#include "data/jinja/jinja_rendering.h"

namespace quench::jinja {
namespace {

constexpr std::string_view kDateFunction = "strftime_now";

std::string formatted_date(const std::tm& date, const std::string& format) {
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

Value loop_attribute(const LoopState& loop, std::string_view name) {
  const auto index = static_cast<std::int64_t>(loop.index), length = static_cast<std::int64_t>(loop.items.size());
  const auto item = [&](std::int64_t at) {
    return at >= 0 && at < length ? loop.items[static_cast<std::size_t>(at)]
                                  : Value(Undefined{fmt::format("loop.{}", name)});
  };
  if (name == "index0") return index;
  if (name == "index") return index + 1;
  if (name == "revindex0") return length - index - 1;
  if (name == "revindex") return length - index;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == length;
  if (name == "length") return length;
  if (name == "depth0") return loop.depth;
  if (name == "depth") return loop.depth + 1;
  if (name == "previtem") return item(index - 1);
  if (name == "nextitem") return item(index + 1);
  return Undefined{std::string(name)};
}

Arguments Rendering::arguments_of(const Expression& expression, std::string_view called, const Scope& scope) {
  Arguments arguments{.called = called};
  for (std::size_t i = 1; i < expression.operands.size(); ++i)
    arguments.values.push_back(evaluate(*expression.operands[i], scope));
  if (expression.spread)
    for (Value& value : items_of(evaluate(*expression.spread, scope), meter_))
      arguments.values.push_back(std::move(value));
  for (const auto& [keyword, value] : expression.keywords)
    arguments.keywords.emplace_back(keyword, evaluate(*value, scope));
  if (expression.keyword_spread) {
    const Value more = evaluate(*expression.keyword_spread, scope);
    QUENCH_CHECK(more.is_map(), "{}: '**' before a value of type {}, expected mapping", called, more.type_name());
    for (const auto& [key, value] : more.map().members) {
      QUENCH_CHECK(key.is_string(), "{}: '**' before a mapping with a key of type {}", called, key.type_name());
      const bool known = std::ranges::find(arguments.keywords, key.string(), [](const auto& keyword) {
                           return keyword.first;
                         }) != arguments.keywords.end();
      QUENCH_CHECK(!known, "{}: the argument '{}' is given twice", called, key.string());
      arguments.keywords.emplace_back(key.string(), value);
    }
  }
  return arguments;
}

Value Rendering::evaluate_call(const Expression& expression, const Scope& scope, const Value* caller) {
  const Expression& callee = *expression.operands[0];
  const auto arguments_for = [&](std::string_view name) {
    Arguments arguments = arguments_of(expression, name, scope);
    if (caller != nullptr) arguments.keywords.emplace_back("caller", *caller);
    line_ = expression.line;
    return arguments;
  };
  if (callee.kind == ExpressionKind::attribute) {
    const Value object = evaluate(*callee.operands[0], scope);
    if (object.loop() != nullptr && (callee.text == "cycle" || callee.text == "changed"))
      return call_loop_method(*object.loop(), callee.text, arguments_for(callee.text));
    if (object.is_namespace() && object.name_space()->kind != NamespaceKind::plain)
      return call_stateful(*object.name_space(), callee.text, arguments_for(callee.text));
    // Methods precede members.
    if (has_method(object, callee.text)) return call_method(object, callee.text, arguments_for(callee.text), meter_);
    return call(attribute_of(object, callee.text), callee.text, arguments_for(callee.text));
  }
  const Value function = evaluate(callee, scope);
  const std::string name = callee.text.empty() ? std::string(function.type_name()) : callee.text;
  return call(function, name, arguments_for(name));
}

Value Rendering::call(const Value& function, std::string_view name, const Arguments& arguments) {
  if (const MacroValue macro = function.macro(); macro.macro != nullptr)
    return call_macro(*macro.macro, *macro.scope, arguments);
  if (!function.builtin().empty()) return call_builtin(function.builtin(), arguments);
  if (const Method* method = function.method(); method != nullptr)
    return call_method(method->object, method->name, arguments, meter_);
  if (function.loop() != nullptr) return call_loop(*function.loop(), arguments);
  if (function.is_namespace() && function.name_space()->kind == NamespaceKind::joiner)
    return call_stateful(*function.name_space(), "", arguments);
  QUENCH_CHECK_AS(ErrorCode::unsupported, !function.is_undefined() || name != kDateFunction,
                  "the template asks for today's date; name a fixed one, so that the tokens stay the same "
                  "(data.chat_date, --chat-date)");
  QUENCH_CHECK_AS(ErrorCode::unsupported, !function.is_undefined(), "the function '{}' is not supported", name);
  QUENCH_FAIL(ErrorCode::invalid_argument, "'{}' is a {}, not a function", name, function.type_name());
}

Value Rendering::call_macro(const Macro& macro, const Scope& defined, const Arguments& arguments) {
  const Level level(*this);
  InnerScope inner(*this, defined);
  const std::size_t count = macro.parameters.size(), first_default = count - macro.defaults.size();
  QUENCH_CHECK(macro.takes_more || arguments.values.size() <= count, "the macro '{}' takes {} arguments, not {}",
               macro.name, count, arguments.values.size());
  Map keywords;
  for (const auto& [keyword, value] : arguments.keywords) {
    if (std::ranges::find(macro.parameters, keyword) != macro.parameters.end()) continue;
    if (keyword == "caller" && macro.takes_caller) {
      inner->set("caller", value);
      continue;
    }
    QUENCH_CHECK(macro.takes_keywords, "the macro '{}' has no parameter '{}'", macro.name, keyword);
    keywords.set(keyword, value);
  }
  if (macro.takes_caller && inner->variables.empty()) inner->set("caller", Undefined{"caller"});
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& name = macro.parameters[i];
    const Value* given = arguments.find(i, name);
    if (given != nullptr)
      inner->set(name, *given);
    else if (i >= first_default)
      inner->set(name, evaluate(*macro.defaults[i - first_default], *inner));
    else
      inner->set(name, Undefined{name});
  }
  if (macro.takes_keywords) inner->set("kwargs", Value(std::move(keywords)));
  if (macro.takes_more) {
    List more;
    if (arguments.values.size() > count)
      more.assign(arguments.values.begin() + static_cast<std::ptrdiff_t>(count), arguments.values.end());
    inner->set("varargs", Value(std::move(more), SequenceKind::tuple));
  }
  std::string text;
  const Exchanged<std::string*> target(target_, &text);
  run_block(*macro.body, *inner);
  return text;
}

// loop() with nested items.
Value Rendering::call_loop(const LoopState& loop, const Arguments& arguments) {
  arguments.check({"iterable"}, 1);
  QUENCH_CHECK(loop.statement != nullptr && loop.running,
               "a loop is called that is not recursive; {{% for ... recursive %}} makes one");
  const Level level(*this);
  std::string text;
  const Exchanged<std::string*> target(target_, &text);
  run_items(*loop.statement, items_of(*arguments.find(0, "iterable"), meter_), loop.depth + 1, *loop.outer);
  return text;
}

Value Rendering::call_loop_method(LoopState& loop, std::string_view name, const Arguments& arguments) {
  if (name == "cycle") {
    QUENCH_CHECK(!arguments.values.empty(), "loop.cycle: no items for cycling given");
    return arguments.values[loop.index % arguments.values.size()];
  }
  const bool same = loop.changed && loop.changed->size() == arguments.values.size() &&
                    std::ranges::equal(*loop.changed, arguments.values, equal);
  loop.changed = arguments.values;
  return !same;
}

// Cycler: next(), reset(), current. A joiner is empty on the first call.
Value Rendering::call_stateful(Namespace& state, std::string_view method, const Arguments& arguments) {
  arguments.check({});
  auto& members = state.members.members;  // position, items
  const auto position = static_cast<std::size_t>(members[0].second.integer());
  if (state.kind == NamespaceKind::joiner) {
    QUENCH_CHECK(method.empty(), "a joiner has no method '{}'", method);
    members[0].second = std::int64_t{1};
    return position == 0 ? Value("") : members[1].second;
  }
  QUENCH_CHECK(method == "next" || method == "reset", "a cycler has no method '{}'", method);
  const std::size_t count = members.size() - 1;
  members[0].second = method == "reset" ? std::int64_t{0} : static_cast<std::int64_t>((position + 1) % count);
  return method == "reset" ? Value() : members[1 + position].second;
}

// Mapping or pairs, then keyword arguments.
Map Rendering::members_of(std::string_view name, const Arguments& arguments) {
  QUENCH_CHECK(arguments.values.size() <= 1, "{}: {} arguments without names, at most 1 expected", name,
               arguments.values.size());
  Map map;
  if (!arguments.values.empty() && arguments.values[0].is_map()) {
    map.members = arguments.values[0].map().members;
  } else if (!arguments.values.empty()) {
    for (const Value& pair : items_of(arguments.values[0], meter_)) {
      const List parts = items_of(pair, meter_);
      QUENCH_CHECK(parts.size() == 2, "{}: a pair of {} items", name, parts.size());
      map.set(parts[0], parts[1]);
    }
  }
  for (const auto& [keyword, value] : arguments.keywords) map.set(keyword, value);
  return map;
}

Value Rendering::call_builtin(std::string_view name, const Arguments& arguments) {
  if (name == "raise_exception") {
    arguments.check({"message"}, 1);
    QUENCH_FAIL(ErrorCode::invalid_argument, "the template refuses the conversation: {}",
                text_of(*arguments.find(0, "message")));
  }
  if (name == kDateFunction) {
    arguments.check({"format"}, 1);
    return formatted_date(*date_, arguments.text(0, "format", ""));
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
    return {std::move(list), SequenceKind::range};
  }
  if (name == "cycler" || name == "joiner") {
    Namespace state{.kind = name == "cycler" ? NamespaceKind::cycler : NamespaceKind::joiner};
    state.members.members.emplace_back("position", std::int64_t{0});
    if (name == "joiner") arguments.check({"sep"});
    QUENCH_CHECK(name == "joiner" || !arguments.values.empty(), "cycler: at least one item has to be provided");
    if (name == "joiner") state.members.members.emplace_back("item", arguments.text(0, "sep", ", "));
    if (name == "cycler")
      for (const Value& value : arguments.values) state.members.members.emplace_back("item", value);
    return &namespaces_.emplace_back(std::move(state));
  }
  Map map = members_of(name, arguments);
  if (name == "dict") return map;
  for (const auto& [key, value] : map.members)
    QUENCH_CHECK(!key.is_string() || !key.string().starts_with('_'), "namespace: an attribute '{}' with an underscore",
                 key.string());
  return &namespaces_.emplace_back(Namespace{std::move(map)});
}

}  // namespace quench::jinja
