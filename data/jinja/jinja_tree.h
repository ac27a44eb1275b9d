#pragma once
// A parsed template.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/jinja/jinja_value.h"

namespace quench::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind : std::uint8_t {
  constant,    // value
  name,        // text
  list,        // operands
  map,         // operands: key, value, key, value, ...
  attribute,   // operands[0].text
  item,        // operands[0][operands[1]]
  slice,       // operands[0][operands[1]:operands[2]:operands[3]], null where left out
  call,        // operands[0](operands[1...], keywords)
  filter,      // operands[0] | text(operands[1...], keywords)
  test,        // operands[0] is text(operands[1...])
  unary,       // text: "not", "-", "+"
  binary,      // text: "and", "or", "+", "-", "*", "/", "//", "%", "**", "~"
  comparison,  // operands with `operators` between them: "==", "in", "not in", ...
  condition,   // operands[0] if operands[1] else operands[2], which may be null
};

struct Expression {
  ExpressionKind kind = ExpressionKind::constant;
  int line = 0;
  std::string text{};
  Value value{};
  std::vector<ExpressionPtr> operands{};
  std::vector<std::pair<std::string, ExpressionPtr>> keywords{};
  std::vector<std::string> operators{};
};

struct Statement;
using Block = std::vector<Statement>;

struct Macro {
  std::string name;
  std::vector<std::string> parameters{};
  std::vector<ExpressionPtr> defaults{};  // of the last parameters
  Block* body = nullptr;
};

enum class StatementKind : std::uint8_t {
  text,         // text
  output,       // expressions[0]
  conditional,  // if expressions[i]: blocks[i] ...; a further block is the else's
  loop,         // for names in expressions[0] (if expressions[1]): blocks[0], else blocks[1]
  assign,       // set names = expressions[0]; with `text`, the namespace names[0] and its attribute
  capture,      // set names[0]: blocks[0], through the filters of expressions[0], whose input is the name ""
  macro,        // macro, blocks[0]
  generation,   // blocks[0] is what the assistant is to produce
  leave,        // break
  next,         // continue
};

struct Statement {
  StatementKind kind = StatementKind::text;
  int line = 0;
  std::string text{};
  std::vector<std::string> names{};
  std::vector<ExpressionPtr> expressions{};
  std::vector<Block> blocks{};
  std::unique_ptr<Macro> macro{};
};

}  // namespace quench::jinja
