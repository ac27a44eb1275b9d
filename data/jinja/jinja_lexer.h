#pragma once
// Lexer with the white space control of Transformers: trim_blocks (no newline after a block or comment), lstrip_blocks
// (no white space before one at the start of a line), "-" and "+" at either end, no newline at the template's end.

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
  string,  // unescaped
  integer,
  number,
  symbol,  // operator, bracket
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;
  int line = 0;
};

// "<name>:<line>: <what>", as in all template errors.
[[nodiscard]] std::string located(std::string_view name, int line, std::string_view what);

// Throws Error(unsupported) "<name>:<line>: <what>".
[[nodiscard]] std::vector<Token> tokenize(std::string_view source, std::string_view name);

}  // namespace quench::jinja
