#pragma once
// Syntax tree of Jinja templates.

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
  tuple,       // operands
  map,         // operands: key, value, key, value, ...
  attribute,   // operands[0].text
  item,        // operands[0][operands[1]]
  slice,       // operands[0][operands[1]:operands[2]:operands[3]], null if omitted
  call,        // operands[0](operands[1...], keywords, *spread, **keyword_spread)
  filter,      // operands[0] | text(arguments as of a call)
  test,        // operands[0] is text(arguments as of a call)
  unary,       // text: "not", "-", "+"
  binary,      // text: "and", "or", "+", "-", "*", "/", "//", "%", "**", "~"
  comparison,  // operands joined by `operators`: "==", "in", "not in", ...
  condition,   // operands[0] if operands[1] else operands[2] (nullable)
};

struct Expression {
  ExpressionKind kind = ExpressionKind::constant;
  int line = 0;
  std::string text{};
  Value value{};
  std::vector<ExpressionPtr> operands{};
  std::vector<std::pair<std::string, ExpressionPtr>> keywords{};
  ExpressionPtr spread{}, keyword_spread{};
  std::vector<std::string> operators{};
};

// Variable, namespace attribute, or several (unpacking).
struct Target {
  std::string name{};
  std::string attribute{};
  std::vector<Target> parts{};
};

struct Statement;
using Block = std::vector<Statement>;

struct Macro {
  std::string name;
  std::vector<std::string> parameters{};
  std::vector<ExpressionPtr> defaults{};                                  // defaults of the last parameters
  bool takes_more = false, takes_keywords = false, takes_caller = false;  // reads varargs, kwargs, caller
  Block* body = nullptr;
};

enum class StatementKind : std::uint8_t {
  text,         // text
  output,       // expressions[0]
  conditional,  // if expressions[i]: blocks[i] ...; an extra block is the else
  loop,         // for target in expressions[0] (if expressions[1]): blocks[0], else blocks[1]
  assign,       // set target = expressions[0]
  capture,      // set target: blocks[0] through the filters of expressions[0], with input name ""
  filter,       // output of blocks[0] through the filters of expressions[0]
  with,         // targets.parts[i] = expressions[i], for blocks[0]
  call,         // expressions[0], a call, with `macro` as its caller
  macro,        // macro, blocks[0]
  generation,   // blocks[0]: assistant output
  scope,        // blocks[0]
  leave,        // break
  next,         // continue
};

struct Statement {
  StatementKind kind = StatementKind::text;
  int line = 0;
  std::string text{};
  Target target{};
  bool recursive = false;
  std::vector<ExpressionPtr> expressions{};
  std::vector<Block> blocks{};
  std::unique_ptr<Macro> macro{};
};

}  // namespace quench::jinja
