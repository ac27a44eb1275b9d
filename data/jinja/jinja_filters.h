#pragma once
// Filters and methods by input type.

#include <span>
#include <string_view>

#include "data/jinja/jinja_functions.h"

namespace quench::jinja {

struct NamedFunction {
  std::string_view name;
  Value (*apply)(const Value& input, const Arguments& arguments, Meter& meter);
};

[[nodiscard]] std::span<const NamedFunction> text_filters();
[[nodiscard]] std::span<const NamedFunction> item_filters();    // sequences and mappings
[[nodiscard]] std::span<const NamedFunction> number_filters();  // scalars
[[nodiscard]] std::span<const NamedFunction> string_methods();

}  // namespace quench::jinja
