#pragma once
// Tables of filters, tests, methods and lookups. Errors carry no template name and line, which rendering adds:
// unsupported for unknown names, invalid_argument for wrong types.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "data/jinja/jinja_value.h"

namespace quench::jinja {

// Resource meter of a rendering, for untrusted templates.
class Meter {
 public:
  Meter(std::uint64_t max_steps, std::uint64_t max_bytes) : steps_left_(max_steps), bytes_left_(max_bytes) {}
  // Throws invalid_argument when the budget is exhausted.
  void step(std::uint64_t count = 1);
  void bytes(std::uint64_t count);

 private:
  std::uint64_t steps_left_, bytes_left_;
};

// New string value, metered; markup if `markup`.
[[nodiscard]] Value made(std::string text, Meter& meter, bool markup = false);
// String for concatenation into markup or plain text.
[[nodiscard]] std::string joined_text(const Value& value, bool markup);

struct Arguments {
  std::string_view called{};  // for errors
  std::vector<Value> values{};
  std::vector<std::pair<std::string, Value>> keywords{};
  // Argument by position or name; null: absent.
  [[nodiscard]] const Value* find(std::size_t place, std::string_view name) const;
  // Throws unless there are at least `required` arguments, all with positions among `names`.
  void check(std::initializer_list<std::string_view> names, std::size_t required = 0) const;
  [[nodiscard]] std::string text(std::size_t place, std::string_view name, std::string otherwise) const;
  [[nodiscard]] std::int64_t integer(std::size_t place, std::string_view name, std::int64_t otherwise) const;
  [[nodiscard]] bool flag(std::size_t place, std::string_view name) const;  // default: false
};

[[nodiscard]] Value apply_filter(std::string_view name, const Value& input, const Arguments& arguments, Meter& meter);
[[nodiscard]] bool apply_test(std::string_view name, const Value& input, const Arguments& arguments);
[[nodiscard]] bool is_filter(std::string_view name) noexcept;
[[nodiscard]] bool is_test(std::string_view name) noexcept;
// True if Python's type has the method.
[[nodiscard]] bool has_method(const Value& object, std::string_view name) noexcept;
[[nodiscard]] Value call_method(const Value& object, std::string_view name, const Arguments& arguments, Meter& meter);

// object.name (methods before members) and object[key] (members before methods); undefined if absent. Throws for
// undefined objects.
[[nodiscard]] Value attribute_of(const Value& object, std::string_view name);
[[nodiscard]] Value item_of(const Value& object, const Value& key);
// Filter attribute path "a.b"; an integer is one item, null the object itself. `otherwise` replaces undefined items.
[[nodiscard]] Value attribute_path(const Value& object, const Value* path, const Value* otherwise = nullptr);
// Throws for unhashable values: lists and mappings.
void check_key(const Value& value);
// object[start:stop:step], null if omitted.
[[nodiscard]] Value slice_of(const Value& object, const Value* start, const Value* stop, const Value* step);
// Iterated items: of a sequence, keys of a mapping, characters of a string; none for undefined. Exhausts an iterator.
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
