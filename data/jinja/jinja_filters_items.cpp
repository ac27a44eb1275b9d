
#include <algorithm>

#include "core/system/check.h"
#include "data/jinja/jinja_filters.h"
#include "data/jinja/jinja_text.h"

namespace quench::jinja {
namespace {

Value filter_length(const Value& input, const Arguments& a, Meter&) {
  a.check({});
  if (input.is_undefined()) return std::int64_t{0};
  if (input.is_string()) return static_cast<std::int64_t>(character_count(input.string()));
  if (input.is_sequence() && !input.is_iterator()) return static_cast<std::int64_t>(input.items().size());
  if (input.is_map()) return static_cast<std::int64_t>(input.map().members.size());
  QUENCH_FAIL(ErrorCode::invalid_argument, "the length of a value of type {}", input.type_name());
}

Value filter_list(const Value& input, const Arguments& a, Meter& meter) {
  a.check({});
  return items_of(input, meter);
}

Value filter_items(const Value& input, const Arguments& a, Meter& meter) {
  a.check({});
  if (input.is_undefined()) return {List{}, SequenceKind::iterator};
  QUENCH_CHECK(input.is_map(), "the items of a value of type {}, expected mapping", input.type_name());
  return {call_method(input, "items", a, meter).items(), SequenceKind::iterator};
}

Value filter_first(const Value& input, const Arguments& a, Meter& meter) {
  a.check({});
  if (input.is_iterator() && input.taken() < input.items().size()) return input.items()[input.taken()++];
  const List items = items_of(input, meter);
  return items.empty() ? Value(Undefined{"the first item of an empty sequence"}) : items.front();
}

Value filter_last(const Value& input, const Arguments& a, Meter& meter) {
  a.check({});
  QUENCH_CHECK(!input.is_iterator(), "the last item of a value of type {}; the filter list makes a list of it",
               input.type_name());
  const List items = items_of(input, meter);
  return items.empty() ? Value(Undefined{"the last item of an empty sequence"}) : items.back();
}

Value filter_reverse(const Value& input, const Arguments& a, Meter& meter) {
  a.check({});
  List items = items_of(input, meter);
  std::ranges::reverse(items);
  if (!input.is_string()) return {std::move(items), input.is_iterator() ? SequenceKind::list : SequenceKind::iterator};
  std::string text;
  for (const Value& item : items) text += item.string();
  return made(std::move(text), meter, input.is_markup());
}

Value filter_join(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"d", "attribute"});
  const Value* separator = a.find(0, "d");
  const std::string between = separator != nullptr ? text_of(*separator) : "";
  std::string text;
  bool first = true;
  for (const Value& item : items_of(input, meter)) {
    const std::string part = text_of(attribute_path(item, a.find(1, "attribute")));
    meter.bytes(between.size() + part.size());
    if (!first) text += between;
    first = false;
    text += part;
  }
  return text;
}

// As in Jinja2: none, 0, undefined.
List items_if_true(const Value& input, Meter& meter) {
  return input.truthy() ? items_of(input, meter) : List{};
}

Value filter_map(const Value& input, const Arguments& a, Meter& meter) {
  List out;
  if (a.values.empty() && a.find(0, "attribute") != nullptr) {
    a.check({"attribute", "default"});
    const Value* otherwise = a.find(1, "default");
    for (const Value& item : items_if_true(input, meter))
      out.push_back(attribute_path(item, a.find(0, "attribute"), otherwise));
    return {std::move(out), SequenceKind::iterator};
  }
  const List items = items_if_true(input, meter);
  if (items.empty()) return {List{}, SequenceKind::iterator};
  QUENCH_CHECK(!a.values.empty(), "map: neither a filter nor an attribute");
  QUENCH_CHECK(a.values[0].is_string(), "map: the filter's name is {}", a.values[0].type_name());
  const std::string name = a.values[0].string();
  const Arguments rest{.called = name, .values = List(a.values.begin() + 1, a.values.end()), .keywords = a.keywords};
  for (const Value& item : items) out.push_back(apply_filter(name, item, rest, meter));
  return {std::move(out), SequenceKind::iterator};
}

// select, reject, selectattr, rejectattr.
template <bool kAttribute, bool kKeep>
Value filter_select(const Value& input, const Arguments& a, Meter& meter) {
  const List items = items_if_true(input, meter);
  List out;
  if (items.empty()) return {std::move(out), SequenceKind::iterator};
  List values = a.values;
  Value attribute;
  if (kAttribute) {
    QUENCH_CHECK(!values.empty(), "{}: the attribute's name is missing", a.called);
    attribute = values[0];
    values.erase(values.begin());
  }
  std::string test;
  if (!values.empty()) {
    QUENCH_CHECK(values[0].is_string(), "{}: the test's name is {}", a.called, values[0].type_name());
    test = values[0].string();
    values.erase(values.begin());
  }
  const Arguments rest{.called = test, .values = values, .keywords = a.keywords};
  for (const Value& item : items) {
    const Value value = attribute_path(item, &attribute);
    if ((test.empty() ? value.truthy() : apply_test(test, value, rest)) == kKeep) out.push_back(item);
  }
  return {std::move(out), SequenceKind::iterator};
}

Value folded(const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? Value(with_case(value.string(), LetterCase::lower)) : value;
}

// Comma-separated attributes as a list; equal keys, also undefined ones, need no ordering.
Value sort_key(const Value& item, const Value* attribute, bool case_sensitive) {
  if (attribute == nullptr || !attribute->is_string()) return folded(attribute_path(item, attribute), case_sensitive);
  List keys;
  for (const std::string& path : split(attribute->string(), ",", -1)) {
    const Value part(path);
    keys.push_back(folded(attribute_path(item, &part), case_sensitive));
  }
  return keys;
}

// Stable.
List sorted(const List& items, const List& keys, bool reverse) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(
      order, [&](std::size_t x, std::size_t y) { return reverse ? less(keys[y], keys[x]) : less(keys[x], keys[y]); });
  List out;
  for (const std::size_t i : order) out.push_back(items[i]);
  return out;
}

Value filter_sort(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"reverse", "case_sensitive", "attribute"});
  const List items = items_of(input, meter);
  meter.step(items.size() * 20);
  List keys;
  for (const Value& item : items) keys.push_back(sort_key(item, a.find(2, "attribute"), a.flag(1, "case_sensitive")));
  return sorted(items, keys, a.flag(0, "reverse"));
}

Value filter_dictsort(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"case_sensitive", "by", "reverse"});
  QUENCH_CHECK(input.is_map(), "dictsort of a value of type {}, expected mapping", input.type_name());
  const std::string by = a.text(1, "by", "key");
  QUENCH_CHECK(by == "key" || by == "value", "dictsort: by '{}'; known: key, value", by);
  const List pairs = call_method(input, "items", {}, meter).items();
  meter.step(pairs.size() * 20);
  List keys;
  for (const Value& pair : pairs)
    keys.push_back(folded(pair.items()[by == "key" ? 0 : 1], a.flag(0, "case_sensitive")));
  return sorted(pairs, keys, a.flag(2, "reverse"));
}

Value filter_unique(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"case_sensitive", "attribute"});
  List keys, out;
  for (const Value& item : items_of(input, meter)) {
    const Value key = folded(attribute_path(item, a.find(1, "attribute")), a.flag(0, "case_sensitive"));
    check_key(key);
    meter.step(keys.size());
    if (std::ranges::any_of(keys, [&](const Value& known) { return equal(known, key); })) continue;
    keys.push_back(key);
    out.push_back(item);
  }
  return {std::move(out), SequenceKind::iterator};
}

template <bool kMax>
Value filter_extreme(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"case_sensitive", "attribute"});
  const List items = items_of(input, meter);
  const Value* found = nullptr;
  Value best;
  for (const Value& item : items) {
    Value key = folded(attribute_path(item, a.find(1, "attribute")), a.flag(0, "case_sensitive"));
    if (found != nullptr && !(kMax ? less(best, key) : less(key, best))) continue;
    best = std::move(key);
    found = &item;
  }
  return found != nullptr ? *found : Value(Undefined{"an item of an empty sequence"});
}

Value filter_sum(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"attribute", "start"});
  Value total = a.find(1, "start") != nullptr ? *a.find(1, "start") : Value(std::int64_t{0});
  QUENCH_CHECK(!total.is_string(), "sum: strings are joined by the filter join");
  for (const Value& item : items_of(input, meter))
    total = apply_operator("+", total, attribute_path(item, a.find(0, "attribute")), meter);
  return total;
}

Value filter_batch(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"linecount", "fill_with"}, 1);
  const std::int64_t count = a.integer(0, "linecount", 0);
  List rows, row;
  for (const Value& item : items_of(input, meter)) {
    if (static_cast<std::int64_t>(row.size()) == count) rows.emplace_back(std::exchange(row, {}));
    row.push_back(item);
  }
  if (row.empty()) return {std::move(rows), SequenceKind::iterator};
  const Value* fill = a.find(1, "fill_with");
  if (fill != nullptr && !fill->is_none() && static_cast<std::int64_t>(row.size()) < count) {
    meter.step(static_cast<std::uint64_t>(count));
    row.resize(static_cast<std::size_t>(count), *fill);
  }
  rows.emplace_back(std::move(row));
  return {std::move(rows), SequenceKind::iterator};
}

Value filter_slice(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"slices", "fill_with"}, 1);
  const std::int64_t slices = a.integer(0, "slices", 0);
  QUENCH_CHECK(slices != 0, "slice: division by zero");
  const List items = items_of(input, meter);
  meter.step(static_cast<std::uint64_t>(std::max<std::int64_t>(slices, 0)));
  const Value* fill = a.find(1, "fill_with");
  List rows;
  std::size_t at = 0;
  for (std::int64_t i = 0; i < slices; ++i) {
    const auto count = static_cast<std::size_t>(slices);
    const bool extra = static_cast<std::size_t>(i) < items.size() % count;
    const std::size_t size = items.size() / count + (extra ? 1 : 0);
    List row(items.begin() + static_cast<std::ptrdiff_t>(at), items.begin() + static_cast<std::ptrdiff_t>(at + size));
    at += size;
    if (!extra && fill != nullptr && !fill->is_none()) row.push_back(*fill);
    rows.emplace_back(std::move(row));
  }
  return {std::move(rows), SequenceKind::iterator};
}

// By key.
Value filter_groupby(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"attribute", "default", "case_sensitive"}, 1);
  const List items = items_of(input, meter);
  meter.step(items.size() * 20);
  const bool case_sensitive = a.flag(2, "case_sensitive");
  const auto key_of = [&](const Value& item) {
    return attribute_path(item, a.find(0, "attribute"), a.find(1, "default"));
  };
  List keys;
  for (const Value& item : items) {
    keys.push_back(folded(key_of(item), case_sensitive));
  }
  const List ordered = sorted(items, keys, false);
  List groups, group;
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    group.push_back(ordered[i]);
    if (i + 1 < ordered.size() &&
        equal(folded(key_of(ordered[i]), case_sensitive), folded(key_of(ordered[i + 1]), case_sensitive)))
      continue;
    Value key = key_of(group.front());
    groups.emplace_back(List{std::move(key), Value(std::exchange(group, {}))}, SequenceKind::group);
  }
  return groups;
}

constexpr NamedFunction kItemFilters[] = {
    {"batch", filter_batch},
    {"count", filter_length},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"groupby", filter_groupby},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"map", filter_map},
    {"max", filter_extreme<true>},
    {"min", filter_extreme<false>},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<true, false>},
    {"reverse", filter_reverse},
    {"select", filter_select<false, true>},
    {"selectattr", filter_select<true, true>},
    {"slice", filter_slice},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};

}  // namespace

std::span<const NamedFunction> item_filters() {
  return kItemFilters;
}

}  // namespace quench::jinja
