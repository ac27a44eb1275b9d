#include <algorithm>
#include <limits>

#include "core/system/check.h"
#include "data/jinja/jinja_functions.h"
#include "data/jinja/jinja_rendering.h"
#include "data/jinja/jinja_text.h"

namespace quench::jinja {
namespace {

[[noreturn]] void fail_undefined(const Value& value) {
  QUENCH_FAIL(ErrorCode::invalid_argument, "'{}' is undefined", value.undefined_name());
}

}  // namespace

Value made(std::string text, Meter& meter, bool markup) {
  meter.bytes(text.size());
  return Text{std::move(text), markup};
}

std::string joined_text(const Value& value, bool markup) {
  return markup && !value.is_markup() ? escape_html(text_of(value)) : text_of(value);
}

void Meter::step(std::uint64_t count) {
  QUENCH_CHECK(count <= steps_left_, "the template takes too many steps");
  steps_left_ -= count;
}

void Meter::bytes(std::uint64_t count) {
  QUENCH_CHECK(count <= bytes_left_, "the template makes too much text");
  bytes_left_ -= count;
}

const Value* Arguments::find(std::size_t place, std::string_view name) const {
  if (place < values.size()) return &values[place];
  for (const auto& [keyword, value] : keywords)
    if (keyword == name) return &value;
  return nullptr;
}

void Arguments::check(std::initializer_list<std::string_view> names, std::size_t required) const {
  QUENCH_CHECK(values.size() <= names.size(), "{}: {} arguments, at most {} expected", called, values.size(),
               names.size());
  for (const auto& [keyword, value] : keywords)
    QUENCH_CHECK_AS(ErrorCode::unsupported, std::ranges::find(names, std::string_view(keyword)) != names.end(),
                    "{}: the argument '{}' is not supported", called, keyword);
  for (std::size_t i = 0; i < required; ++i)
    QUENCH_CHECK(find(i, *(names.begin() + i)) != nullptr, "{}: the argument '{}' is missing", called,
                 *(names.begin() + i));
}

std::string Arguments::text(std::size_t place, std::string_view name, std::string otherwise) const {
  const Value* value = find(place, name);
  if (value == nullptr || value->is_none()) return otherwise;
  QUENCH_CHECK(value->is_string(), "{}: the argument '{}' is {}, expected string", called, name, value->type_name());
  return value->string();
}

std::int64_t Arguments::integer(std::size_t place, std::string_view name, std::int64_t otherwise) const {
  const Value* value = find(place, name);
  if (value == nullptr || value->is_none()) return otherwise;
  QUENCH_CHECK(value->is_integer() || value->is_bool(), "{}: the argument '{}' is {}, expected integer", called, name,
               value->type_name());
  return value->integer();
}

bool Arguments::flag(std::size_t place, std::string_view name) const {
  const Value* value = find(place, name);
  return value != nullptr && value->truthy();
}

Value attribute_of(const Value& object, std::string_view name) {
  if (object.is_undefined()) fail_undefined(object);
  if (object.is_namespace()) {
    if (const Value* member = object.name_space()->members.find(name)) return *member;
  } else if (has_method(object, name)) {
    return std::make_shared<const Method>(Method{object, std::string(name)});
  } else if (object.is_map()) {
    if (const Value* member = object.map().find(name)) return *member;
  } else if (object.is_sequence(SequenceKind::group)) {
    if (name == "grouper" || name == "list") return object.items()[name == "list" ? 1 : 0];
  } else if (object.macro().macro != nullptr && name == "name") {
    return object.macro().macro->name;
  } else if (object.loop() != nullptr) {
    return loop_attribute(*object.loop(), name);
  }
  return Undefined{std::string(name)};
}

Value item_of(const Value& object, const Value& key) {
  if (object.is_undefined()) fail_undefined(object);
  if (object.is_map())
    if (const Value* member = object.map().find(key)) return *member;
  if (key.is_string()) return attribute_of(object, key.string());
  if (key.is_integer() || key.is_bool()) {
    std::int64_t index = key.integer();
    const auto at = [&](auto&& items) -> Value {
      const auto size = static_cast<std::int64_t>(items.size());
      if (index < 0) index += size;
      if (index < 0 || index >= size) return Undefined{fmt::format("item {}", key.integer())};
      return items[static_cast<std::size_t>(index)];
    };
    if (object.is_indexed()) return at(object.items());
    if (object.is_string()) {
      const Value character = at(characters_of(object.string()));
      return object.is_markup() && character.is_string() ? Value(Text{character.string(), true}) : character;
    }
  }
  return Undefined{fmt::format("item {}", key.is_callable() ? key.type_name() : repr_of(key))};
}

void check_key(const Value& value) {
  QUENCH_CHECK(!value.is_map() && !value.is_list(), "a value of type {} is no key of a mapping", value.type_name());
  if (value.is_tuple()) std::ranges::for_each(value.items(), check_key);
}

Value attribute_path(const Value& object, const Value* path, const Value* otherwise) {
  if (path == nullptr || path->is_none()) return object;
  const auto defined = [&](Value found) {
    return found.is_undefined() && otherwise != nullptr && !otherwise->is_none() ? *otherwise : found;
  };
  if (!path->is_string()) return defined(item_of(object, *path));
  Value value = object;
  for (const std::string& name : split(path->string(), ".", -1)) {
    const bool digits = !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
    value = defined(item_of(value, digits ? Value(static_cast<std::int64_t>(std::stoll(name))) : Value(name)));
  }
  return value;
}

Value slice_of(const Value& object, const Value* start, const Value* stop, const Value* step) {
  if (object.is_undefined()) fail_undefined(object);
  if (!object.is_indexed() && !object.is_string()) return Undefined{"a slice"};
  const auto bound = [](const Value* value, std::int64_t otherwise) {
    if (value == nullptr || value->is_none()) return otherwise;
    QUENCH_CHECK(value->is_integer() || value->is_bool(), "a slice's bound is {}, expected integer",
                 value->type_name());
    return value->integer();
  };
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min();
  const std::int64_t stride = bound(step, 1);
  QUENCH_CHECK(stride != 0, "a slice of step 0");
  const std::vector<std::string_view> characters =
      object.is_string() ? characters_of(object.string()) : std::vector<std::string_view>();
  const auto size = static_cast<std::int64_t>(object.is_string() ? characters.size() : object.items().size());
  const auto clamp = [&](std::int64_t value, std::int64_t otherwise) {
    if (value == kNone) return otherwise;
    if (value < 0)
      value = value < -size ? -1 : value + size;
    else if (value >= size)
      return stride > 0 ? size : size - 1;
    if (value < 0) return stride > 0 ? std::int64_t{0} : std::int64_t{-1};
    return value;
  };
  std::int64_t at = clamp(bound(start, kNone), stride > 0 ? 0 : size - 1);
  const std::int64_t end = clamp(bound(stop, kNone), stride > 0 ? size : -1);
  List list;
  std::string text;
  while (stride > 0 ? at < end : at > end) {
    if (object.is_string())
      text += characters[static_cast<std::size_t>(at)];
    else
      list.push_back(object.items()[static_cast<std::size_t>(at)]);
    // Against integer overflow.
    if (stride > 0 ? stride >= end - at : stride <= end - at) break;
    at += stride;
  }
  if (object.is_string()) return Text{std::move(text), object.is_markup()};
  return {std::move(list), object.kind()};
}

List items_of(const Value& value, Meter& meter) {
  if (value.is_undefined()) return {};
  List items;
  if (value.is_iterator()) {
    items.assign(value.items().begin() + static_cast<std::ptrdiff_t>(value.taken()), value.items().end());
    value.taken() = value.items().size();
  } else if (value.is_sequence()) {
    items = value.items();
  } else if (value.is_map()) {
    for (const auto& [key, member] : value.map().members) items.push_back(key);
  } else if (value.is_string()) {
    for (const std::string_view character : characters_of(value.string())) items.emplace_back(character);
  } else {
    QUENCH_FAIL(ErrorCode::invalid_argument, "a value of type {} has no items", value.type_name());
  }
  meter.step(items.size());
  return items;
}

bool contains(const Value& container, const Value& value) {
  if (container.is_undefined()) return false;
  if (container.is_string()) {
    QUENCH_CHECK(value.is_string(), "'in' looks for {} in a string", value.type_name());
    return container.string().find(value.string()) != std::string::npos;
  }
  if (container.is_map()) {
    check_key(value);
    return container.map().find(value) != nullptr;
  }
  QUENCH_CHECK(container.is_sequence(), "'in' looks in a value of type {}", container.type_name());
  if (!container.is_iterator())
    return std::ranges::any_of(container.items(), [&](const Value& item) { return equal(item, value); });
  while (container.taken() < container.items().size())
    if (equal(container.items()[container.taken()++], value)) return true;
  return false;
}

bool less(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number())
    return a.is_float() || b.is_float() ? a.number() < b.number() : a.integer() < b.integer();
  if (a.is_string() && b.is_string()) return a.string() < b.string();
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    const auto [x, y] = std::ranges::mismatch(a.items(), b.items(), equal);
    if (x == a.items().end() || y == b.items().end()) return a.items().size() < b.items().size();
    return less(*x, *y);
  }
  for (const Value* value : {&a, &b})
    if (value->is_undefined()) fail_undefined(*value);
  QUENCH_FAIL(ErrorCode::invalid_argument, "{} and {} have no order", a.type_name(), b.type_name());
}

}  // namespace quench::jinja
