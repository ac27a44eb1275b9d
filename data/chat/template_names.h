#pragma once
// Caller's variables, and message keys that a template may read.

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace quench {

struct TemplateNames {
  using Names = std::set<std::string, std::less<>>;
  Names variables;                    // read before assignment
  Names keys;                         // attributes and string constants
  std::vector<std::string> literals;  // string constants of at least two bytes, stripped

  // A caller's variable with an effect.
  [[nodiscard]] bool reads(std::string_view variable) const { return variables.contains(variable); }
  // A message key that may have an effect.
  [[nodiscard]] bool mentions(std::string_view key) const { return keys.contains(key); }
};

// By source order: a caller's variable is read where no {% set %}, {% for %} or {% macro %} before has bound it; of the
// arguments `tools`, `documents`, `custom_tools`, `builtin_tools`, in all cases (a {% set %} in one branch of an {% if
// %} does not). Throws Error(unsupported) "<name>:<line>: <what>" on lexer errors.
[[nodiscard]] TemplateNames template_names(std::string_view source, const std::string& name);

}  // namespace quench
