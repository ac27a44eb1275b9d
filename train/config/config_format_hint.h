#pragma once
// Config files in another language than JSON.

#include <optional>
#include <string_view>

namespace quench {

struct ForeignSyntax {
  std::string_view language;  // "YAML", "TOML"
  int line = 0;               // of the first line that shows it
};

// By the first line that is neither blank nor a comment; nullopt where that may be JSON.
[[nodiscard]] std::optional<ForeignSyntax> recognise_syntax(std::string_view text);

}  // namespace quench
