#include "data/jinja/jinja_expressions.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "core/system/check.h"

namespace quench::jinja {
namespace {

// Name of a token in errors.
std::string described(const Token& token) {
  switch (token.kind) {
    case TokenKind::end: return "the end of the template";
    case TokenKind::text: return "text";
    case TokenKind::variable_begin: return "'{{'";
    case TokenKind::variable_end: return "'}}'";
    case TokenKind::block_begin: return "'{%'";
    case TokenKind::block_end: return "'%}'";
    case TokenKind::string: return "a string";
    default: return fmt::format("'{}'", token.text);
  }
}

}  // namespace

void ExpressionParser::fail_at(int line, std::string_view what) const {
  QUENCH_FAIL(ErrorCode::unsupported, "{}", located(name_, line, what));
}

Token ExpressionParser::take() {
  Token token = current();
  if (token.kind != TokenKind::end) ++at_;
  return token;
}

bool ExpressionParser::take_symbol(std::string_view text) {
  if (!at_symbol(text)) return false;
  ++at_;
  return true;
}

bool ExpressionParser::take_name(std::string_view text) {
  if (!at_name(text)) return false;
  ++at_;
  return true;
}

void ExpressionParser::expect_symbol(std::string_view text) {
  if (!take_symbol(text)) fail(fmt::format("{}, expected '{}'", described(current()), text));
}

void ExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (!at(kind)) fail(fmt::format("{}, expected {}", described(current()), what));
  ++at_;
}

std::string ExpressionParser::expect_name(std::string_view what) {
  if (!at(TokenKind::name)) fail(fmt::format("{}, expected {}", described(current()), what));
  return take().text;
}

ExpressionPtr ExpressionParser::make(ExpressionKind kind, std::string text) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = current().line;
  node->text = std::move(text);
  return node;
}

template <class Next>
ExpressionPtr ExpressionParser::parse_binary(std::initializer_list<std::string_view> symbols, const Next& next) {
  ExpressionPtr left = next();
  for (int chained = 0;;) {
    const auto symbol = std::ranges::find_if(symbols, [&](std::string_view text) { return at_symbol(text); });
    if (symbol == symbols.end()) return left;
    if (++chained > kMaxDepth) fail("a chain of too many operators");
    ExpressionPtr node = make(ExpressionKind::binary, std::string(*symbol));
    take();
    node->operands.push_back(std::move(left));
    node->operands.push_back(next());
    left = std::move(node);
  }
}

ExpressionPtr ExpressionParser::parse_tuple(bool ternary) {
  ExpressionPtr first = parse_expression(ternary);
  if (!at_symbol(",")) return first;
  ExpressionPtr tuple = with_operand(make(ExpressionKind::tuple), std::move(first));
  while (take_symbol(",")) {
    if (at(TokenKind::variable_end) || at(TokenKind::block_end) || at_symbol(")") || at_name("in")) break;
    tuple->operands.push_back(parse_expression(ternary));
  }
  return tuple;
}

ExpressionPtr ExpressionParser::parse_expression(bool ternary) {
  const Level level(*this);
  ExpressionPtr value = parse_or();
  for (int chained = 0; ternary && at_name("if"); ++chained) {
    if (chained > kMaxDepth) fail("a chain of too many conditions");
    ExpressionPtr node = make(ExpressionKind::condition);
    take();
    node->operands.push_back(std::move(value));
    node->operands.push_back(parse_or());
    node->operands.push_back(take_name("else") ? parse_expression() : nullptr);
    value = std::move(node);
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  for (int chained = 0; at_name("or"); ++chained) {
    if (chained > kMaxDepth) fail("a chain of too many operators");
    ExpressionPtr node = make(ExpressionKind::binary, take().text);
    node->operands.push_back(std::move(left));
    node->operands.push_back(parse_and());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  for (int chained = 0; at_name("and"); ++chained) {
    if (chained > kMaxDepth) fail("a chain of too many operators");
    ExpressionPtr node = make(ExpressionKind::binary, take().text);
    node->operands.push_back(std::move(left));
    node->operands.push_back(parse_not());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!at_name("not")) return parse_comparison();
  const Level level(*this);
  ExpressionPtr node = make(ExpressionKind::unary, take().text);
  return with_operand(std::move(node), parse_not());
}

ExpressionPtr ExpressionParser::parse_comparison() {
  ExpressionPtr left = parse_sum();
  ExpressionPtr node;
  while (true) {
    std::string symbol;
    if (at(TokenKind::symbol)) {
      for (const std::string_view known : {"==", "!=", "<", "<=", ">", ">="})
        if (current().text == known) symbol = known;
    } else if (at_name("in")) {
      symbol = "in";
    } else if (at_name("not") && tokens_[at_ + 1].kind == TokenKind::name && tokens_[at_ + 1].text == "in") {
      take();
      symbol = "not in";
    }
    if (symbol.empty()) return node ? std::move(node) : std::move(left);
    if (!node) node = with_operand(make(ExpressionKind::comparison), std::move(left));
    take();
    node->operators.push_back(symbol);
    node->operands.push_back(parse_sum());
  }
}

ExpressionPtr ExpressionParser::parse_sum() {
  return parse_binary({"+", "-"}, [this] { return parse_concatenation(); });
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  return parse_binary({"~"}, [this] { return parse_product(); });
}

ExpressionPtr ExpressionParser::parse_product() {
  return parse_binary({"*", "/", "//", "%"}, [this] { return parse_power(); });
}

ExpressionPtr ExpressionParser::parse_power() {
  return parse_binary({"**"}, [this] { return parse_unary(); });
}

ExpressionPtr ExpressionParser::parse_unary(bool filters) {
  ExpressionPtr node;
  if (at_symbol("-") || at_symbol("+")) {
    const Level level(*this);
    node = make(ExpressionKind::unary, take().text);
    node->operands.push_back(parse_unary(false));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return filters ? parse_filters(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Level level(*this);
  ExpressionPtr node = make(ExpressionKind::constant);
  switch (current().kind) {
    case TokenKind::name: {
      const Token token = take();
      const std::string& name = token.text;
      if (name == "true" || name == "True") {
        node->value = true;
      } else if (name == "false" || name == "False") {
        node->value = false;
      } else if (name != "none" && name != "None") {
        node->kind = ExpressionKind::name;
        node->text = name;
        if (name == "varargs" || name == "kwargs" || name == "caller") special_names_.push_back(name);
      }
      return node;
    }
    case TokenKind::string: {
      std::string text;
      while (at(TokenKind::string)) text += take().text;
      node->value = std::move(text);
      return node;
    }
    case TokenKind::integer: {
      const std::string digits = take().text;
      const int base = digits.starts_with("0x") ? 16 : digits.starts_with("0o") ? 8 : digits.starts_with("0b") ? 2 : 10;
      std::int64_t number = 0;
      const char* begin = digits.data() + (base == 10 ? 0 : 2);
      if (std::from_chars(begin, digits.data() + digits.size(), number, base).ec != std::errc())
        fail(fmt::format("the integer {} is beyond 64 bits with a sign", digits));
      node->value = number;
      return node;
    }
    case TokenKind::number: {
      const std::string digits = take().text;
      node->value = std::strtod(digits.c_str(), nullptr);
      return node;
    }
    default: break;
  }
  if (take_symbol("[")) return parse_list("]", ExpressionKind::list);
  if (take_symbol("{")) return parse_map();
  if (take_symbol("(")) {
    if (at_symbol(")")) return parse_list(")", ExpressionKind::tuple);
    ExpressionPtr first = parse_expression();
    if (!at_symbol(",")) {
      expect_symbol(")");
      return first;
    }
    take();
    ExpressionPtr list = parse_list(")", ExpressionKind::tuple);
    list->operands.insert(list->operands.begin(), std::move(first));
    return list;
  }
  fail(fmt::format("{}, expected a value", described(current())));
}

ExpressionPtr ExpressionParser::parse_list(std::string_view end, ExpressionKind kind) {
  ExpressionPtr list = make(kind);
  while (!take_symbol(end)) {
    list->operands.push_back(parse_expression());
    if (!at_symbol(end)) expect_symbol(",");
  }
  return list;
}

ExpressionPtr ExpressionParser::parse_map() {
  ExpressionPtr map = make(ExpressionKind::map);
  while (!take_symbol("}")) {
    map->operands.push_back(parse_expression());
    expect_symbol(":");
    map->operands.push_back(parse_expression());
    if (!at_symbol("}")) expect_symbol(",");
  }
  return map;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr left) {
  for (int chained = 0;; ++chained) {
    if (chained > kMaxDepth) fail("a chain of too many lookups");
    if (take_symbol(".")) {
      ExpressionPtr node;
      if (at(TokenKind::integer)) {
        node = make(ExpressionKind::item);
        node->operands.push_back(std::move(left));
        node->operands.push_back(parse_primary());
      } else {
        node = make(ExpressionKind::attribute);
        node->text = expect_name("an attribute");
        node->operands.push_back(std::move(left));
      }
      left = std::move(node);
    } else if (take_symbol("[")) {
      left = parse_item(std::move(left));
    } else if (at_symbol("(")) {
      left = parse_call(std::move(left));
    } else {
      return left;
    }
  }
}

ExpressionPtr ExpressionParser::parse_item(ExpressionPtr left) {
  ExpressionPtr node = with_operand(make(ExpressionKind::item), std::move(left));
  ExpressionPtr bounds[3];
  std::size_t colons = 0;
  while (!at_symbol("]") && !(colons == 0 && bounds[0] && at_symbol(","))) {
    if (take_symbol(":")) {
      if (++colons > 2) fail("a slice of more than three parts");
    } else {
      if (bounds[colons]) fail(fmt::format("{}, expected ']'", described(current())));
      bounds[colons] = parse_expression();
    }
  }
  if (colons == 0 && at_symbol(",")) {
    ExpressionPtr tuple = with_operand(make(ExpressionKind::tuple), std::move(bounds[0]));
    while (take_symbol(",") && !at_symbol("]")) tuple->operands.push_back(parse_expression());
    bounds[0] = std::move(tuple);
  }
  expect_symbol("]");
  if (colons > 0) {
    node->kind = ExpressionKind::slice;
    for (ExpressionPtr& bound : bounds) node->operands.push_back(std::move(bound));
  } else {
    if (!bounds[0]) fail("[] without an index");
    node->operands.push_back(std::move(bounds[0]));
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr function) {
  ExpressionPtr node = with_operand(make(ExpressionKind::call), std::move(function));
  take();
  parse_arguments(*node);
  return node;
}

void ExpressionParser::parse_arguments(Expression& call) {
  while (!take_symbol(")")) {
    const Token& next = tokens_[std::min(at_ + 1, tokens_.size() - 1)];
    if (at_symbol("*") || at_symbol("**")) {
      ExpressionPtr& spread = at_symbol("*") ? call.spread : call.keyword_spread;
      if (spread || (at_symbol("*") && call.keyword_spread))
        fail(fmt::format("a second '{}' before an argument", current().text));
      take();
      spread = parse_expression();
    } else if (at(TokenKind::name) && next.kind == TokenKind::symbol && next.text == "=") {
      if (call.keyword_spread) fail("an argument with a name after '**'");
      std::string keyword = take().text;
      take();
      call.keywords.emplace_back(std::move(keyword), parse_expression());
    } else {
      if (!call.keywords.empty() || call.spread || call.keyword_spread)
        fail("an argument without a name after one with a name");
      call.operands.push_back(parse_expression());
    }
    if (!at_symbol(")")) expect_symbol(",");
  }
}

std::size_t ExpressionParser::uses(std::string_view name) const {
  return static_cast<std::size_t>(std::ranges::count(special_names_, name));
}

}  // namespace quench::jinja
