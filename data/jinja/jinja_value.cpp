#include "data/jinja/jinja_value.h"

#include <algorithm>

#include "core/system/check.h"

namespace quench::jinja {
namespace {

bool equal_parts(const Value& a, const Value& b, int depth, std::size_t& parts) {
  QUENCH_CHECK(depth <= kMaxNesting, "a value is nested deeper than {} levels", kMaxNesting);
  QUENCH_CHECK(++parts <= kMaxParts, "two values of more than {} parts are compared", kMaxParts);
  if (a.is_number() && b.is_number())
    return a.is_float() || b.is_float() ? a.number() == b.number() : a.integer() == b.integer();
  if (a.is_string() && b.is_string()) return a.string() == b.string();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_sequence() && b.is_sequence())
    return (a.kind() == b.kind() || (a.is_tuple() && b.is_tuple())) && !a.is_iterator() &&
           std::ranges::equal(a.items(), b.items(),
                              [&](const Value& x, const Value& y) { return equal_parts(x, y, depth + 1, parts); });
  if (a.is_map() && b.is_map()) {
    if (a.map().members.size() != b.map().members.size()) return false;
    return std::ranges::all_of(a.map().members, [&](const auto& member) {
      const Value* other = b.map().find(member.first);
      return other != nullptr && equal_parts(member.second, *other, depth + 1, parts);
    });
  }
  if (a.is_namespace() && b.is_namespace()) return a.name_space() == b.name_space();
  return a.macro().macro != nullptr && a.macro().macro == b.macro().macro;
}

}  // namespace

const Value* Map::find(std::string_view key) const noexcept {
  for (const auto& [name, value] : members)
    if (name.is_string() && name.string() == key) return &value;
  return nullptr;
}

const Value* Map::find(const Value& key) const {
  if (key.is_string()) return find(std::string_view(key.string()));
  for (const auto& [name, value] : members)
    if (!name.is_string() && equal(name, key)) return &value;
  return nullptr;
}

void Map::set(const Value& key, Value value) {
  if (const Value* known = find(key); known != nullptr)
    *const_cast<Value*>(known) = std::move(value);
  else
    members.emplace_back(key, std::move(value));
}

Value Value::from_json(const Json& json) {
  if (json.is_null()) return {};
  if (json.is_bool()) return json.as_bool();
  if (json.is_string()) return json.as_string();
  if (json.is_integer()) {
    try {
      return json.as_int();
    } catch (const Error&) {
      QUENCH_FAIL(ErrorCode::unsupported, "the integer {} is beyond 64 bits with a sign", json.dump());
    }
  }
  if (json.is_number()) return json.as_double();
  if (json.is_array()) {
    List list;
    for (const Json& item : json.as_array()) list.push_back(from_json(item));
    return list;
  }
  Map map;
  for (const auto& [key, item] : json.as_object()) map.members.emplace_back(key, from_json(item));
  return map;
}

MacroValue Value::macro() const noexcept {
  const auto* macro = std::get_if<MacroValue>(&value_);
  return macro != nullptr ? *macro : MacroValue{};
}

std::string_view Value::builtin() const noexcept {
  const auto* builtin = std::get_if<Builtin>(&value_);
  return builtin != nullptr ? builtin->name : std::string_view();
}

const Method* Value::method() const noexcept {
  const auto* method = std::get_if<std::shared_ptr<const Method>>(&value_);
  return method != nullptr ? method->get() : nullptr;
}

LoopState* Value::loop() const noexcept {
  const auto* loop = std::get_if<std::shared_ptr<LoopState>>(&value_);
  return loop != nullptr ? loop->get() : nullptr;
}

std::int64_t Value::integer() const {
  return is_bool() ? (boolean() ? 1 : 0) : std::get<std::int64_t>(value_);
}

double Value::number() const {
  return is_float() ? std::get<double>(value_) : static_cast<double>(integer());
}

bool Value::truthy() const noexcept {
  if (is_none() || is_undefined()) return false;
  if (is_bool()) return std::get<bool>(value_);
  if (is_integer()) return std::get<std::int64_t>(value_) != 0;
  if (is_float()) return std::get<double>(value_) != 0;
  if (is_string()) return !std::get<SharedText>(value_)->text.empty();
  if (is_sequence()) return is_iterator() || !std::get<SharedSequence>(value_)->items.empty();
  if (is_map()) return !std::get<SharedMap>(value_)->members.empty();
  return true;
}

std::string_view Value::type_name() const noexcept {
  constexpr std::string_view kNames[] = {"none",    "undefined", "boolean", "integer",  "float",  "string", "list",
                                         "mapping", "namespace", "macro",   "function", "method", "loop"};
  constexpr std::string_view kSequences[] = {
      "list", "tuple", "tuple", "range", "keys of a mapping", "values of a mapping", "items of a mapping", "iterator"};
  if (is_sequence()) return kSequences[static_cast<std::size_t>(std::get<SharedSequence>(value_)->kind)];
  return kNames[value_.index()];
}

bool equal(const Value& a, const Value& b) {
  std::size_t parts = 0;
  return equal_parts(a, b, 0, parts);
}

}  // namespace quench::jinja
