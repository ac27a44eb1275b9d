#pragma once
// Python format specifications: after ":" in "{:>8.2f}", and of "%8.2f".

#include <cstdint>
#include <string>
#include <string_view>

#include "data/jinja/jinja_value.h"

namespace quench::jinja {

struct FormatSpec {
  std::string fill{};      // empty: a space, or a zero for `zero`
  char align = '\0';       // '<', '>', '^', '='; none: by type
  char sign = '-';         // '+', '-', ' '
  bool alternate = false;  // '#'
  bool zero = false;
  std::int64_t width = 0;
  char grouping = '\0';  // ',' or '_'
  std::int64_t precision = -1;
  char type = '\0';
  [[nodiscard]] bool plain() const {
    return fill.empty() && align == '\0' && sign == '-' && !alternate && !zero && width == 0 && grouping == '\0' &&
           precision < 0 && type == '\0';
  }
};

// Throws invalid_argument as Python.
[[nodiscard]] FormatSpec parse_format_spec(std::string_view text);
// Python's format(value, spec).
[[nodiscard]] std::string formatted(const Value& value, const FormatSpec& spec);

}  // namespace quench::jinja
