#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/system/check.h"
#include "data/jinja/jinja_functions.h"
#include "data/jinja/jinja_text.h"

namespace quench::jinja {
namespace {

// Text filters take any value's text, as Jinja2's do.
std::string text_input(const Value& input) {
  return text_of(input);
}

Value filter_trim(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"chars"});
  return made(std::string(strip(text_input(input), a.text(0, "chars", ""), StripSide::both)), meter);
}

template <LetterCase kCase>
Value filter_case(const Value& input, const Arguments& a, Meter& meter) {
  a.check({});
  return made(with_case(text_input(input), kCase), meter);
}

Value filter_string(const Value& input, const Arguments& a, Meter& meter) {
  a.check({});
  return input.is_string() ? input : made(text_input(input), meter);
}

Value filter_replace(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"old", "new", "count"}, 2);
  const std::string text = text_input(input), from = a.text(0, "old", ""), to = a.text(1, "new", "");
  meter.bytes((text.size() + 1) * (to.size() / std::max<std::size_t>(from.size(), 1) + 1));
  return replace(text, from, to, a.integer(2, "count", -1));
}

Value filter_indent(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"width", "first", "blank"});
  const Value* width = a.find(0, "width");
  std::string prefix;
  if (width != nullptr && width->is_string()) {
    prefix = width->string();
  } else {
    const std::int64_t spaces = a.integer(0, "width", 4);
    QUENCH_CHECK(spaces >= 0 && spaces <= 1000, "indent by {} spaces", spaces);
    prefix.assign(static_cast<std::size_t>(spaces), ' ');
  }
  const std::vector<std::string> lines = split(text_input(input), "\n", -1);
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    const bool indented = i == 0 ? a.flag(1, "first") : (!lines[i].empty() || a.flag(2, "blank"));
    meter.bytes(lines[i].size() + prefix.size());
    if (indented) out += prefix;
    out += lines[i];
  }
  return out;
}

Value filter_tojson(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"ensure_ascii", "indent", "separators", "sort_keys"});
  QUENCH_CHECK_AS(ErrorCode::unsupported, a.find(2, "separators") == nullptr || a.find(2, "separators")->is_none(),
                  "tojson: the argument 'separators' is not supported");
  const std::int64_t indent = a.integer(1, "indent", -1);
  QUENCH_CHECK(indent <= 16, "tojson: an indent of {}", indent);
  return made(json_text(input, {.indent = static_cast<int>(indent),
                                .sort_keys = a.flag(3, "sort_keys"),
                                .ascii = a.flag(0, "ensure_ascii")}),
              meter);
}

Value filter_length(const Value& input, const Arguments& a, Meter&) {
  a.check({});
  if (input.is_undefined()) return std::int64_t{0};
  if (input.is_string()) return static_cast<std::int64_t>(character_count(input.string()));
  if (input.is_list()) return static_cast<std::int64_t>(input.list().size());
  if (input.is_map()) return static_cast<std::int64_t>(input.map().members.size());
  QUENCH_FAIL(ErrorCode::invalid_argument, "the length of a value of type {}", input.type_name());
}

Value filter_default(const Value& input, const Arguments& a, Meter&) {
  a.check({"default_value", "boolean"});
  const bool replaced = input.is_undefined() || (a.flag(1, "boolean") && !input.truthy());
  if (!replaced) return input;
  const Value* other = a.find(0, "default_value");
  return other != nullptr ? *other : Value("");
}

Value filter_list(const Value& input, const Arguments& a, Meter& meter) {
  a.check({});
  return items_of(input, meter);
}

Value filter_items(const Value& input, const Arguments& a, Meter& meter) {
  a.check({});
  if (input.is_undefined()) return List{};
  QUENCH_CHECK(input.is_map(), "the items of a value of type {}, expected mapping", input.type_name());
  return call_method(input, "items", a, meter);
}

template <bool kLast>
Value filter_end(const Value& input, const Arguments& a, Meter& meter) {
  a.check({});
  const List items = items_of(input, meter);
  if (items.empty()) return Undefined{"an item of an empty sequence"};
  return kLast ? items.back() : items.front();
}

Value filter_reverse(const Value& input, const Arguments& a, Meter& meter) {
  a.check({});
  List items = items_of(input, meter);
  std::ranges::reverse(items);
  if (!input.is_string()) return items;
  std::string text;
  for (const Value& item : items) text += item.string();
  return made(std::move(text), meter);
}

Value filter_join(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"d", "attribute"});
  const Value* separator = a.find(0, "d");
  const std::string between = separator != nullptr ? text_of(*separator) : "";
  const std::string attribute = a.text(1, "attribute", "");
  std::string text;
  bool first = true;
  for (const Value& item : items_of(input, meter)) {
    const std::string part = text_of(attribute.empty() ? item : attribute_path(item, attribute));
    meter.bytes(between.size() + part.size());
    if (!first) text += between;
    first = false;
    text += part;
  }
  return text;
}

Value filter_map(const Value& input, const Arguments& a, Meter& meter) {
  List out;
  if (a.values.empty()) {
    a.check({"attribute", "default"});
    const std::string attribute = a.text(0, "attribute", "");
    QUENCH_CHECK(!attribute.empty(), "map: neither a filter nor an attribute");
    const Value* otherwise = a.find(1, "default");
    for (const Value& item : items_of(input, meter)) {
      Value value = attribute_path(item, attribute);
      out.push_back(value.is_undefined() && otherwise != nullptr ? *otherwise : std::move(value));
    }
    return out;
  }
  QUENCH_CHECK(a.values[0].is_string(), "map: the filter's name is {}", a.values[0].type_name());
  const std::string name = a.values[0].string();
  const Arguments rest{.called = name, .values = List(a.values.begin() + 1, a.values.end()), .keywords = a.keywords};
  for (const Value& item : items_of(input, meter)) out.push_back(apply_filter(name, item, rest, meter));
  return out;
}

// select, reject, selectattr, rejectattr: by a test, or by truth.
template <bool kAttribute, bool kKeep>
Value filter_select(const Value& input, const Arguments& a, Meter& meter) {
  List values = a.values;
  std::string attribute;
  if (kAttribute) {
    QUENCH_CHECK(!values.empty() && values[0].is_string(), "{}: the attribute's name is missing", a.called);
    attribute = values[0].string();
    values.erase(values.begin());
  }
  std::string test;
  if (!values.empty()) {
    QUENCH_CHECK(values[0].is_string(), "{}: the test's name is {}", a.called, values[0].type_name());
    test = values[0].string();
    values.erase(values.begin());
  }
  const Arguments rest{.called = test, .values = values, .keywords = a.keywords};
  List out;
  for (const Value& item : items_of(input, meter)) {
    const Value value = kAttribute ? attribute_path(item, attribute) : item;
    if ((test.empty() ? value.truthy() : apply_test(test, value, rest)) == kKeep) out.push_back(item);
  }
  return out;
}

Value folded(const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? Value(with_case(value.string(), LetterCase::lower)) : value;
}

Value filter_sort(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"reverse", "case_sensitive", "attribute"});
  const std::string attribute = a.text(2, "attribute", "");
  List items = items_of(input, meter);
  meter.step(items.size() * 20);
  const auto key = [&](const Value& item) {
    return folded(attribute.empty() ? item : attribute_path(item, attribute), a.flag(1, "case_sensitive"));
  };
  const bool reverse = a.flag(0, "reverse");
  std::ranges::stable_sort(
      items, [&](const Value& x, const Value& y) { return reverse ? less(key(y), key(x)) : less(key(x), key(y)); });
  return items;
}

Value filter_dictsort(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"case_sensitive"});
  QUENCH_CHECK(input.is_map(), "dictsort of a value of type {}, expected mapping", input.type_name());
  List pairs = call_method(input, "items", {}, meter).list();
  meter.step(pairs.size() * 20);
  const auto key = [&](const Value& pair) { return folded(pair.list()[0], a.flag(0, "case_sensitive")); };
  std::ranges::stable_sort(pairs, [&](const Value& x, const Value& y) { return less(key(x), key(y)); });
  return pairs;
}

Value filter_unique(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"case_sensitive", "attribute"});
  const std::string attribute = a.text(1, "attribute", "");
  List keys, out;
  for (const Value& item : items_of(input, meter)) {
    const Value key = folded(attribute.empty() ? item : attribute_path(item, attribute), a.flag(0, "case_sensitive"));
    meter.step(keys.size());
    if (std::ranges::any_of(keys, [&](const Value& known) { return equal(known, key); })) continue;
    keys.push_back(key);
    out.push_back(item);
  }
  return out;
}

Value filter_int(const Value& input, const Arguments& a, Meter&) {
  a.check({"default"});
  const Value otherwise = a.find(0, "default") != nullptr ? *a.find(0, "default") : Value(std::int64_t{0});
  if (input.is_integer() || input.is_bool()) return input.integer();
  if (input.is_float()) {
    const double value = std::trunc(input.number());
    return std::abs(value) < 9e18 ? Value(static_cast<std::int64_t>(value)) : otherwise;
  }
  if (!input.is_string()) return otherwise;
  const std::string text(strip(input.string(), {}, StripSide::both));
  std::int64_t value = 0;
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  double number = 0;
  const auto [stop, wrong] = std::from_chars(begin, text.data() + text.size(), number);
  if (wrong == std::errc() && stop == text.data() + text.size() && std::abs(number) < 9e18)
    return static_cast<std::int64_t>(number);
  return otherwise;
}

Value filter_float(const Value& input, const Arguments& a, Meter&) {
  a.check({"default"});
  const Value otherwise = a.find(0, "default") != nullptr ? *a.find(0, "default") : Value(0.0);
  if (input.is_number()) return input.number();
  if (!input.is_string()) return otherwise;
  const std::string text(strip(input.string(), {}, StripSide::both));
  double number = 0;
  const auto [stop, wrong] = std::from_chars(text.data(), text.data() + text.size(), number);
  return wrong == std::errc() && stop == text.data() + text.size() && !text.empty() ? Value(number) : otherwise;
}

Value filter_abs(const Value& input, const Arguments& a, Meter&) {
  a.check({});
  QUENCH_CHECK(input.is_number(), "abs of a value of type {}", input.type_name());
  if (input.is_float()) return std::abs(input.number());
  QUENCH_CHECK(input.integer() != std::numeric_limits<std::int64_t>::min(), "abs: a number beyond 64 bits");
  return input.integer() < 0 ? -input.integer() : input.integer();
}

Value filter_safe(const Value& input, const Arguments& a, Meter&) {
  a.check({});
  return input;
}

Value filter_attr(const Value& input, const Arguments& a, Meter&) {
  a.check({"name"}, 1);
  return attribute_of(input, a.text(0, "name", ""));
}

struct Filter {
  std::string_view name;
  Value (*apply)(const Value& input, const Arguments& arguments, Meter& meter);
};

constexpr Filter kFilters[] = {
    {"abs", filter_abs},
    {"attr", filter_attr},
    {"capitalize", filter_case<LetterCase::capitalize>},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", filter_dictsort},
    {"first", filter_end<false>},
    {"float", filter_float},
    {"indent", filter_indent},
    {"int", filter_int},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_end<true>},
    {"length", filter_length},
    {"list", filter_list},
    {"lower", filter_case<LetterCase::lower>},
    {"map", filter_map},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<true, false>},
    {"replace", filter_replace},
    {"reverse", filter_reverse},
    {"safe", filter_safe},
    {"select", filter_select<false, true>},
    {"selectattr", filter_select<true, true>},
    {"sort", filter_sort},
    {"string", filter_string},
    {"title", filter_case<LetterCase::title>},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"unique", filter_unique},
    {"upper", filter_case<LetterCase::upper>},
};

}  // namespace

Value apply_filter(std::string_view name, const Value& input, const Arguments& arguments, Meter& meter) {
  meter.step();
  const auto* filter = std::ranges::find(kFilters, name, &Filter::name);
  QUENCH_CHECK_AS(ErrorCode::unsupported, filter != std::end(kFilters), "the filter '{}' is not supported", name);
  return filter->apply(input, arguments, meter);
}

}  // namespace quench::jinja
