// Filters, tests and calls after an expression.

#include <algorithm>

#include "data/jinja/jinja_expressions.h"

namespace quench::jinja {

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr input) {
  ExpressionPtr node = with_operand(make(ExpressionKind::filter), std::move(input));
  node->text = expect_name("a filter");
  if (take_symbol("(")) parse_arguments(*node);
  return node;
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr input) {
  for (int chained = 0;; ++chained) {
    if (chained > kMaxDepth) fail("a chain of too many filters");
    if (take_symbol("|")) {
      input = parse_filter(std::move(input));
    } else if (take_name("is")) {
      input = parse_test(std::move(input));
    } else if (at_symbol("(")) {
      input = parse_call(std::move(input));
    } else {
      return input;
    }
  }
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr left) {
  const bool negated = take_name("not");
  ExpressionPtr node = with_operand(make(ExpressionKind::test), std::move(left));
  node->text = expect_name("a test");
  if (take_symbol("(")) {
    parse_arguments(*node);
  } else {
    constexpr std::string_view kNoArguments[] = {"else", "or", "and", "is", "if", "not", "in"};
    const bool word = at(TokenKind::name) && std::ranges::find(kNoArguments, current().text) == std::end(kNoArguments);
    if (word || at(TokenKind::string) || at(TokenKind::integer) || at(TokenKind::number) || at_symbol("[") ||
        at_symbol("{"))
      node->operands.push_back(parse_postfix(parse_primary()));
  }
  if (!negated) return node;
  return with_operand(make(ExpressionKind::unary, "not"), std::move(node));
}

}  // namespace quench::jinja
