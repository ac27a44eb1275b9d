#pragma once
// Filters, tests, methods and lookups. Errors: unsupported for unknown names, invalid_argument for wrong types;
// rendering adds template name and line.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "data/jinja/jinja_value.h"

namespace quench::jinja {

// Resources of a rendering, for untrusted templates.
class Meter {
 public:
  Meter(std::uint64_t max_steps, std::uint64_t max_bytes) : steps_left_(max_steps), bytes_left_(max_bytes) {}
  // Throws invalid_argument when exhausted.
  void step(std::uint64_t count = 1);
  void bytes(std::uint64_t count);

 private:
  std::uint64_t steps_left_, bytes_left_;
};

// Metered.
[[nodiscard]] Value made(std::string text, Meter& meter, bool markup = false);
// For concatenation into markup or plain text.
[[nodiscard]] std::string joined_text(const Value& value, bool markup);

struct Arguments {
  std::string_view called{};  // for errors
  std::vector<Value> values{};
  std::vector<std::pair<std::string, Value>> keywords{};
  // By position or name; or null.
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
// Methods of the Python type of `object`.
[[nodiscard]] bool has_method(const Value& object, std::string_view name) noexcept;
[[nodiscard]] Value call_method(const Value& object, std::string_view name, const Arguments& arguments, Meter& meter);

// object.name (methods before members), object[key] (members before methods); undefined if absent. Throws for undefined
// objects.
[[nodiscard]] Value attribute_of(const Value& object, std::string_view name);
[[nodiscard]] Value item_of(const Value& object, const Value& key);
// Path "a.b"; an integer is one item, null the object. `otherwise` replaces undefined items.
[[nodiscard]] Value attribute_path(const Value& object, const Value* path, const Value* otherwise = nullptr);
// Throws for lists and mappings, which are unhashable.
void check_key(const Value& value);
// object[start:stop:step]; or null.
[[nodiscard]] Value slice_of(const Value& object, const Value* start, const Value* stop, const Value* step);
// Elements of a sequence, keys of a mapping, characters of a string; none for undefined. Exhausts an iterator.
[[nodiscard]] List items_of(const Value& value, Meter& meter);
[[nodiscard]] bool contains(const Value& container, const Value& value);
// Python's <: numbers, strings, lists, tuples.
[[nodiscard]] bool less(const Value& a, const Value& b);
// Python's round(value, digits).
[[nodiscard]] Value rounded(const Value& value, std::int64_t digits);
// "+", "-", "*", "/", "//", "%", "**", "~".
[[nodiscard]] Value apply_operator(std::string_view symbol, const Value& a, const Value& b, Meter& meter);
// Python's format % values and format.format(arguments).
[[nodiscard]] std::string printf_text(const Value& format, const Value& values, Meter& meter);
[[nodiscard]] std::string format_text(const Value& format, const Arguments& arguments, Meter& meter);

}  // namespace quench::jinja
