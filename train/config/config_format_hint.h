#pragma once
// Recognition of config files in other languages than JSON, for error messages.

#include <optional>
#include <string_view>

namespace quench {

struct ForeignSyntax {
  std::string_view language;  // "YAML", "TOML"
  int line = 0;               // first with that syntax
};

// Decided by the first line that is neither blank nor a comment; nullopt if possibly JSON.
[[nodiscard]] std::optional<ForeignSyntax> recognise_syntax(std::string_view text);

}  // namespace quench
