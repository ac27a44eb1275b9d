#pragma once
// The text of a Jinja template as tokens, with white space controlled as Transformers sets it for chat templates:
// trim_blocks (a newline right behind a block or comment is left out), lstrip_blocks (so is the white space in front of
// one that begins a line), "-" and "+" at either end, and no newline at the template's end.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quench::jinja {

enum class TokenKind : std::uint8_t {
  text,            // outside of blocks
  variable_begin,  // {{
  variable_end,    // }}
  block_begin,     // {%
  block_end,       // %}
  name,
  string,  // `text` holds what it stands for
  integer,
  number,
  symbol,  // an operator or a bracket
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;
  int line = 0;
};

// "<name>:<line>: <what>": how all errors about a template begin.
[[nodiscard]] std::string located(std::string_view name, int line, std::string_view what);

// `name` is what errors call the template. Throws Error(unsupported) "<name>:<line>: <what>".
[[nodiscard]] std::vector<Token> tokenize(std::string_view source, std::string_view name);

}  // namespace quench::jinja
