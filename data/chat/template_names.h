#pragma once
// Names in a chat template: the variables that its caller may give, and the keys of messages that it may read.

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace quench {

struct TemplateNames {
  using Names = std::set<std::string, std::less<>>;
  Names variables;                    // read before the template sets them
  Names keys;                         // attributes and string constants
  std::vector<std::string> literals;  // string constants of at least two bytes, white space left out

  // Whether a variable that the caller gives under this name has an effect.
  [[nodiscard]] bool reads(std::string_view variable) const { return variables.contains(variable); }
  // Whether a message's key of this name may have one.
  [[nodiscard]] bool mentions(std::string_view key) const { return keys.contains(key); }
};

// Order of the source decides: a name counts as a variable where it is read before any {% set %}, {% for %} or
// {% macro %} binds it. Throws Error(unsupported) "<name>:<line>: <what>" for what the lexer refuses.
[[nodiscard]] TemplateNames template_names(std::string_view source, const std::string& name);

}  // namespace quench
