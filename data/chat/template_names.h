#pragma once
// Static analysis of a chat template: variables of the caller, and message keys that it may read.

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace quench {

struct TemplateNames {
  using Names = std::set<std::string, std::less<>>;
  Names variables;                    // read before assignment in the template
  Names keys;                         // attributes and string constants
  std::vector<std::string> literals;  // string constants of at least two bytes, white space stripped

  // True if a caller's variable of this name has an effect.
  [[nodiscard]] bool reads(std::string_view variable) const { return variables.contains(variable); }
  // True if a message key of this name may have an effect.
  [[nodiscard]] bool mentions(std::string_view key) const { return keys.contains(key); }
};

// Source order decides: a name is a caller's variable if it is read before any {% set %}, {% for %} or {% macro %}
// binds it. Throws Error(unsupported) "<name>:<line>: <what>" on lexer errors.
[[nodiscard]] TemplateNames template_names(std::string_view source, const std::string& name);

}  // namespace quench
