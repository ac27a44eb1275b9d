#pragma once
// Recursive descent, lowest to highest precedence.

#include <string_view>
#include <vector>

#include "data/jinja/jinja_lexer.h"
#include "data/jinja/jinja_tree.h"

namespace quench::jinja {

inline ExpressionPtr with_operand(ExpressionPtr node, ExpressionPtr operand) {
  node->operands.push_back(std::move(operand));
  return node;
}

class ExpressionParser {
 public:
  static constexpr int kMaxDepth = 100;  // expressions and blocks

  ExpressionParser(std::vector<Token> tokens, std::string_view name) : tokens_(std::move(tokens)), name_(name) {}

  // Or a tuple of several; without `ternary` a following "if" is not consumed.
  ExpressionPtr parse_expression(bool ternary = true);
  ExpressionPtr parse_tuple(bool ternary = true);
  ExpressionPtr parse_filters(ExpressionPtr input);
  // Name, arguments, further filters.
  ExpressionPtr parse_filter(ExpressionPtr input);
  // Reads of a variable; of varargs, kwargs and caller for macros with extra arguments.
  [[nodiscard]] std::size_t uses(std::string_view name) const;

  [[nodiscard]] const Token& current() const { return tokens_[at_]; }
  [[nodiscard]] bool at(TokenKind kind) const { return current().kind == kind; }
  [[nodiscard]] bool at_symbol(std::string_view text) const { return at(TokenKind::symbol) && current().text == text; }
  [[nodiscard]] bool at_name(std::string_view text) const { return at(TokenKind::name) && current().text == text; }
  Token take();
  bool take_symbol(std::string_view text);
  bool take_name(std::string_view text);
  void expect_symbol(std::string_view text);
  void expect(TokenKind kind, std::string_view what);
  std::string expect_name(std::string_view what);
  [[noreturn]] void fail(std::string_view what) const { fail_at(current().line, what); }
  [[noreturn]] void fail_at(int line, std::string_view what) const;
  // Nesting level; throws beyond kMaxDepth.
  class Level {
   public:
    explicit Level(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxDepth) parser_.fail("nested too deeply");
    }
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool filters = true);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_postfix(ExpressionPtr left);
  ExpressionPtr parse_item(ExpressionPtr left);
  ExpressionPtr parse_test(ExpressionPtr left);
  ExpressionPtr parse_call(ExpressionPtr function);
  void parse_arguments(Expression& call);
  ExpressionPtr parse_list(std::string_view end, ExpressionKind kind);
  ExpressionPtr parse_map();
  // left, then `next` after each of the symbols.
  template <class Next>
  ExpressionPtr parse_binary(std::initializer_list<std::string_view> symbols, const Next& next);

  [[nodiscard]] ExpressionPtr make(ExpressionKind kind, std::string text = {}) const;

  std::vector<Token> tokens_;
  std::string_view name_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::vector<std::string> special_names_;
};

}  // namespace quench::jinja
