// Methods of Python's str and dict.

#include <algorithm>

#include "core/system/check.h"
#include "data/jinja/jinja_functions.h"
#include "data/jinja/jinja_text.h"

namespace quench::jinja {
namespace {

template <StripSide kSide>
Value string_strip(const Value& self, const Arguments& a, Meter& meter) {
  a.check({"chars"});
  return made(std::string(strip(self.string(), a.text(0, "chars", ""), kSide)), meter);
}

template <LetterCase kCase>
Value string_case(const Value& self, const Arguments& a, Meter& meter) {
  a.check({});
  return made(with_case(self.string(), kCase), meter);
}

// startswith, endswith: a string or a list of them.
template <bool kStart>
Value string_affix(const Value& self, const Arguments& a, Meter& meter) {
  a.check({kStart ? "prefix" : "suffix"}, 1);
  const Value& given = a.values.empty() ? a.keywords[0].second : a.values[0];
  const auto matches = [&](const Value& affix) {
    QUENCH_CHECK(affix.is_string(), "{}: the argument is {}, expected string", a.called, affix.type_name());
    return kStart ? self.string().starts_with(affix.string()) : self.string().ends_with(affix.string());
  };
  if (!given.is_list()) return matches(given);
  meter.step(given.list().size());
  return std::ranges::any_of(given.list(), matches);
}

Value string_split(const Value& self, const Arguments& a, Meter& meter) {
  a.check({"sep", "maxsplit"});
  const Value* separator = a.find(0, "sep");
  QUENCH_CHECK(separator == nullptr || !separator->is_string() || !separator->string().empty(),
               "split: an empty separator");
  List parts;
  for (std::string& part : split(self.string(), a.text(0, "sep", ""), a.integer(1, "maxsplit", -1)))
    parts.emplace_back(std::move(part));
  meter.bytes(self.string().size());
  meter.step(parts.size());
  return parts;
}

Value string_splitlines(const Value& self, const Arguments& a, Meter& meter) {
  a.check({});
  std::vector<std::string> lines = split(replace(replace(self.string(), "\r\n", "\n", -1), "\r", "\n", -1), "\n", -1);
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  meter.bytes(self.string().size());
  meter.step(lines.size());
  List parts;
  for (std::string& line : lines) parts.emplace_back(std::move(line));
  return parts;
}

Value string_replace(const Value& self, const Arguments& a, Meter& meter) {
  return apply_filter("replace", self, a, meter);
}

Value string_join(const Value& self, const Arguments& a, Meter& meter) {
  a.check({"iterable"}, 1);
  return apply_filter("join", a.values.empty() ? a.keywords[0].second : a.values[0],
                      {.called = "join", .values = {self}}, meter);
}

Value string_find(const Value& self, const Arguments& a, Meter&) {
  a.check({"sub"}, 1);
  const std::size_t at = self.string().find(a.text(0, "sub", ""));
  if (at == std::string::npos) return std::int64_t{-1};
  return static_cast<std::int64_t>(character_count(std::string_view(self.string()).substr(0, at)));
}

Value string_count(const Value& self, const Arguments& a, Meter&) {
  a.check({"sub"}, 1);
  const std::string part = a.text(0, "sub", "");
  if (part.empty()) return static_cast<std::int64_t>(character_count(self.string()) + 1);
  std::int64_t count = 0;
  for (std::size_t at = 0; (at = self.string().find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

Value string_isdigit(const Value& self, const Arguments& a, Meter&) {
  a.check({});
  return !self.string().empty() && self.string().find_first_not_of("0123456789") == std::string::npos;
}

Value map_get(const Value& self, const Arguments& a, Meter&) {
  a.check({"key", "default"}, 1);
  const Value& key = *a.find(0, "key");
  const Value* member = key.is_string() ? self.map().find(key.string()) : nullptr;
  if (member != nullptr) return *member;
  const Value* otherwise = a.find(1, "default");
  return otherwise != nullptr ? *otherwise : Value();
}

Value map_items(const Value& self, const Arguments& a, Meter& meter) {
  a.check({});
  meter.step(self.map().members.size());
  List items;
  for (const auto& [key, member] : self.map().members) items.emplace_back(List{Value(key), member});
  return items;
}

Value map_keys(const Value& self, const Arguments& a, Meter& meter) {
  a.check({});
  return items_of(self, meter);
}

Value map_values(const Value& self, const Arguments& a, Meter& meter) {
  a.check({});
  meter.step(self.map().members.size());
  List values;
  for (const auto& [key, member] : self.map().members) values.push_back(member);
  return values;
}

struct Method {
  std::string_view name;
  Value (*call)(const Value& self, const Arguments& arguments, Meter& meter);
};

constexpr Method kStringMethods[] = {
    {"capitalize", string_case<LetterCase::capitalize>},
    {"count", string_count},
    {"endswith", string_affix<false>},
    {"find", string_find},
    {"isdigit", string_isdigit},
    {"join", string_join},
    {"lower", string_case<LetterCase::lower>},
    {"lstrip", string_strip<StripSide::left>},
    {"replace", string_replace},
    {"rstrip", string_strip<StripSide::right>},
    {"split", string_split},
    {"splitlines", string_splitlines},
    {"startswith", string_affix<true>},
    {"strip", string_strip<StripSide::both>},
    {"title", string_case<LetterCase::title>},
    {"upper", string_case<LetterCase::upper>},
};

constexpr Method kMapMethods[] = {
    {"get", map_get},
    {"items", map_items},
    {"keys", map_keys},
    {"values", map_values},
};

const Method* find_method(const Value& object, std::string_view name) noexcept {
  const auto in = [&](const auto& table) -> const Method* {
    const auto* method = std::ranges::find(table, name, &Method::name);
    return method != std::end(table) ? method : nullptr;
  };
  return object.is_string() ? in(kStringMethods) : object.is_map() ? in(kMapMethods) : nullptr;
}

}  // namespace

bool has_method(const Value& object, std::string_view name) noexcept {
  return find_method(object, name) != nullptr;
}

Value call_method(const Value& object, std::string_view name, const Arguments& arguments, Meter& meter) {
  meter.step();
  const Method* method = find_method(object, name);
  QUENCH_CHECK_AS(ErrorCode::unsupported, method != nullptr, "the method '{}' of a value of type {} is not supported",
                  name, object.type_name());
  return method->call(object, arguments, meter);
}

}  // namespace quench::jinja
