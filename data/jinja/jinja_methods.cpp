// Python's list, tuple and dict; methods by type.

#include <algorithm>

#include "core/system/check.h"
#include "data/jinja/jinja_filters.h"

namespace quench::jinja {
namespace {

Value map_get(const Value& self, const Arguments& a, Meter&) {
  a.check({"key", "default"}, 1);
  const Value* member = self.map().find(*a.find(0, "key"));
  if (member != nullptr) return *member;
  const Value* otherwise = a.find(1, "default");
  return otherwise != nullptr ? *otherwise : Value();
}

Value map_items(const Value& self, const Arguments& a, Meter& meter) {
  a.check({});
  meter.step(self.map().members.size());
  List items;
  for (const auto& [key, member] : self.map().members) items.emplace_back(List{key, member}, SequenceKind::tuple);
  return {std::move(items), SequenceKind::items};
}

Value map_keys(const Value& self, const Arguments& a, Meter& meter) {
  a.check({});
  return {items_of(self, meter), SequenceKind::keys};
}

Value map_values(const Value& self, const Arguments& a, Meter& meter) {
  a.check({});
  meter.step(self.map().members.size());
  List values;
  for (const auto& [key, member] : self.map().members) values.push_back(member);
  return {std::move(values), SequenceKind::values};
}

Value copied(const Value& self, const Arguments& a, Meter&) {
  a.check({});
  return self;
}

Value sequence_count(const Value& self, const Arguments& a, Meter& meter) {
  a.check({"value"}, 1);
  meter.step(self.items().size());
  return static_cast<std::int64_t>(
      std::ranges::count_if(self.items(), [&](const Value& item) { return equal(item, *a.find(0, "value")); }));
}

Value sequence_index(const Value& self, const Arguments& a, Meter& meter) {
  a.check({"value", "start", "stop"}, 1);
  meter.step(self.items().size());
  const auto size = static_cast<std::int64_t>(self.items().size());
  const auto bound = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size); };
  const std::int64_t stop = bound(a.integer(2, "stop", size));
  for (std::int64_t i = bound(a.integer(1, "start", 0)); i < stop; ++i)
    if (equal(self.items()[static_cast<std::size_t>(i)], *a.find(0, "value"))) return i;
  QUENCH_FAIL(ErrorCode::invalid_argument, "index: the value is not in the {}", self.type_name());
}

Value float_is_integer(const Value& self, const Arguments& a, Meter&) {
  a.check({});
  return self.number() == static_cast<double>(static_cast<std::int64_t>(self.number()));
}

constexpr NamedFunction kMapMethods[] = {
    {"copy", copied}, {"get", map_get}, {"items", map_items}, {"keys", map_keys}, {"values", map_values},
};

constexpr NamedFunction kSequenceMethods[] = {
    {"copy", copied},
    {"count", sequence_count},
    {"index", sequence_index},
};

constexpr NamedFunction kFloatMethods[] = {{"is_integer", float_is_integer}};

// Rejected. Mutating methods of lists and mappings are absent, as in Jinja2's sandbox.
constexpr std::string_view kOtherStringMethods[] = {"encode", "format_map", "isidentifier", "maketrans", "translate"};

std::span<const NamedFunction> methods_of(const Value& object) noexcept {
  if (object.is_string()) return string_methods();
  if (object.is_map()) return kMapMethods;
  if (object.is_list()) return kSequenceMethods;
  if (object.is_tuple() || object.is_sequence(SequenceKind::range)) return std::span(kSequenceMethods).subspan(1);
  if (object.is_float()) return kFloatMethods;
  return {};
}

const NamedFunction* find_method(const Value& object, std::string_view name) noexcept {
  for (const NamedFunction& method : methods_of(object))
    if (method.name == name) return &method;
  return nullptr;
}

}  // namespace

bool has_method(const Value& object, std::string_view name) noexcept {
  return find_method(object, name) != nullptr ||
         (object.is_string() && std::ranges::find(kOtherStringMethods, name) != std::end(kOtherStringMethods));
}

Value call_method(const Value& object, std::string_view name, const Arguments& arguments, Meter& meter) {
  meter.step();
  const NamedFunction* method = find_method(object, name);
  QUENCH_CHECK_AS(ErrorCode::unsupported, method != nullptr, "the method '{}' of a value of type {} is not supported",
                  name, object.type_name());
  return method->apply(object, arguments, meter);
}

}  // namespace quench::jinja
