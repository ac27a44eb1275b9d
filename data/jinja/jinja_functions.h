#pragma once
// What expressions call: filters, tests, methods and lookups, each kind a table of names. All throw Errors without the
// template's name and line, which the rendering adds: unsupported for a name that is not in the table, invalid_argument
// for values of a wrong type.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "data/jinja/jinja_value.h"

namespace quench::jinja {

// Counts what a rendering has done; templates come from strangers.
class Meter {
 public:
  Meter(std::uint64_t max_steps, std::uint64_t max_bytes) : steps_left_(max_steps), bytes_left_(max_bytes) {}
  // Throws invalid_argument when there is nothing left.
  void step(std::uint64_t count = 1);
  void bytes(std::uint64_t count);

 private:
  std::uint64_t steps_left_, bytes_left_;
};

// A new string as a value, counted; markup if `markup`.
[[nodiscard]] Value made(std::string text, Meter& meter, bool markup = false);
// A string as it goes into a text that is markup or not.
[[nodiscard]] std::string joined_text(const Value& value, bool markup);

struct Arguments {
  std::string_view called{};  // for errors
  std::vector<Value> values{};
  std::vector<std::pair<std::string, Value>> keywords{};
  // The argument at this place or of this name; null: left out.
  [[nodiscard]] const Value* find(std::size_t place, std::string_view name) const;
  // Throws unless there are at least `required` arguments and all have places among `names`.
  void check(std::initializer_list<std::string_view> names, std::size_t required = 0) const;
  [[nodiscard]] std::string text(std::size_t place, std::string_view name, std::string otherwise) const;
  [[nodiscard]] std::int64_t integer(std::size_t place, std::string_view name, std::int64_t otherwise) const;
  [[nodiscard]] bool flag(std::size_t place, std::string_view name) const;  // false unless given
};

[[nodiscard]] Value apply_filter(std::string_view name, const Value& input, const Arguments& arguments, Meter& meter);
[[nodiscard]] bool apply_test(std::string_view name, const Value& input, const Arguments& arguments);
[[nodiscard]] bool is_filter(std::string_view name) noexcept;
[[nodiscard]] bool is_test(std::string_view name) noexcept;
// Whether values of this type have the method in Python.
[[nodiscard]] bool has_method(const Value& object, std::string_view name) noexcept;
[[nodiscard]] Value call_method(const Value& object, std::string_view name, const Arguments& arguments, Meter& meter);

// object.name, where methods precede members, and object[key], where members precede methods; undefined where there is
// none. Throws for lookups in undefined values.
[[nodiscard]] Value attribute_of(const Value& object, std::string_view name);
[[nodiscard]] Value item_of(const Value& object, const Value& key);
// "a.b" as an item of an item, as filters take it, or one item of an integer or null for the object itself.
// Where `otherwise` is given, it stands for each undefined item of the path.
[[nodiscard]] Value attribute_path(const Value& object, const Value* path, const Value* otherwise = nullptr);
// Throws for values that Python cannot hash: lists and mappings.
void check_key(const Value& value);
// object[start:stop:step], null where left out.
[[nodiscard]] Value slice_of(const Value& object, const Value* start, const Value* stop, const Value* step);
// The items that a loop reads: a sequence's items, a mapping's keys, a string's characters; none of undefined. Reads an
// iterator to its end.
[[nodiscard]] List items_of(const Value& value, Meter& meter);
[[nodiscard]] bool contains(const Value& container, const Value& value);
// Python's < for numbers, strings, lists and tuples.
[[nodiscard]] bool less(const Value& a, const Value& b);
// Python's round(value, digits).
[[nodiscard]] Value rounded(const Value& value, std::int64_t digits);
// Binary operators: "+", "-", "*", "/", "//", "%", "**", "~".
[[nodiscard]] Value apply_operator(std::string_view symbol, const Value& a, const Value& b, Meter& meter);
// Python's format % values and format.format(arguments).
[[nodiscard]] std::string printf_text(const Value& format, const Value& values, Meter& meter);
[[nodiscard]] std::string format_text(const Value& format, const Arguments& arguments, Meter& meter);

}  // namespace quench::jinja
