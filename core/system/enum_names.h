#pragma once
// Enum names: one table for config keys, options, docs and errors.
//
//   template <>
//   struct EnumNames<Colour> {
//     static constexpr EnumTable<Colour, 2> values = {{{Colour::red, "red"}, {Colour::blue, "blue"}}};
//   };

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/system/check.h"

namespace quench {

template <class E, std::size_t N>
using EnumTable = std::array<std::pair<E, std::string_view>, N>;

// Rows in documentation order; aliases follow the written name.
template <class E>
struct EnumNames;

template <class E>
[[nodiscard]] constexpr std::string_view enum_name(E value) noexcept {
  for (const auto& [known, name] : EnumNames<E>::values)
    if (known == value) return name;
  return "unknown";
}

template <class E>
[[nodiscard]] std::vector<std::string> enum_names() {
  std::vector<std::string> names;
  for (const auto& [value, name] : EnumNames<E>::values) names.emplace_back(name);
  return names;
}

// Throws bad_config listing the names; `key`: config key or option.
template <class E>
[[nodiscard]] E require_enum(std::string_view name, std::string_view key) {
  for (const auto& [value, known] : EnumNames<E>::values)
    if (known == name) return value;
  QUENCH_FAIL(ErrorCode::bad_config, "{} '{}' is unknown; known: {}", key, name, fmt::join(enum_names<E>(), ", "));
}

}  // namespace quench
