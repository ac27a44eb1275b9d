#include "data/jinja/jinja_parser.h"

#include <algorithm>

#include "core/system/check.h"
#include "data/jinja/jinja_expressions.h"

namespace quench::jinja {
namespace {

class Parser {
 public:
  Parser(std::string_view source, std::string_view name) : in_(tokenize(source, name), name) {}

  Block parse() {
    Block block = parse_block({});
    if (!in_.at(TokenKind::end)) in_.fail("a tag that closes nothing");
    return block;
  }

 private:
  // Up to one of these words at the beginning of a tag, which is then current; with none, up to the end.
  Block parse_block(std::initializer_list<std::string_view> ends) {
    const ExpressionParser::Level level(in_);
    Block block;
    while (!in_.at(TokenKind::end)) {
      if (in_.at(TokenKind::text)) {
        Statement& text = add(block, StatementKind::text);
        text.text = in_.take().text;
      } else if (in_.at(TokenKind::variable_begin)) {
        Statement& output = add(block, StatementKind::output);
        in_.take();
        output.expressions.push_back(in_.parse_tuple());
        in_.expect(TokenKind::variable_end, "'}}'");
      } else {
        in_.expect(TokenKind::block_begin, "'{%'");
        if (std::ranges::any_of(ends, [&](std::string_view end) { return in_.at_name(end); })) return block;
        parse_statement(block);
      }
    }
    if (ends.size() > 0) in_.fail(fmt::format("the template ends without {{% {} %}}", *(ends.end() - 1)));
    return block;
  }

  Statement& add(Block& block, StatementKind kind) {
    block.push_back({.kind = kind, .line = in_.current().line});
    return block.back();
  }

  void end_tag() { in_.expect(TokenKind::block_end, "'%}'"); }
  // The word that closes a block, and its tag's end.
  void close(std::string_view word) {
    if (!in_.take_name(word)) in_.fail(fmt::format("expected {{% {} %}}", word));
    end_tag();
  }

  void parse_statement(Block& block) {
    struct Known {
      std::string_view word;
      void (Parser::*parse)(Block&);
    };
    static constexpr Known kKnown[] = {
        {"if", &Parser::parse_if},
        {"for", &Parser::parse_for},
        {"set", &Parser::parse_set},
        {"macro", &Parser::parse_macro},
        {"generation", &Parser::parse_generation},
        {"break", &Parser::parse_break},
        {"continue", &Parser::parse_continue},
    };
    const int line = in_.current().line;
    const std::string word = in_.expect_name("a statement");
    for (const Known& known : kKnown)
      if (known.word == word) return (this->*known.parse)(block);
    in_.fail_at(line, fmt::format("{{% {} %}} is not supported", word));
  }

  void parse_if(Block& block) {
    Statement& statement = add(block, StatementKind::conditional);
    statement.expressions.push_back(in_.parse_tuple());
    end_tag();
    while (true) {
      statement.blocks.push_back(parse_block({"elif", "else", "endif"}));
      if (in_.take_name("elif")) {
        statement.expressions.push_back(in_.parse_tuple());
        end_tag();
        continue;
      }
      if (in_.take_name("else")) {
        end_tag();
        statement.blocks.push_back(parse_block({"endif"}));
      }
      return close("endif");
    }
  }

  std::vector<std::string> parse_names() {
    const bool bracket = in_.take_symbol("(");
    std::vector<std::string> names;
    do {
      names.push_back(in_.expect_name("a variable"));
    } while (in_.take_symbol(","));
    if (bracket) in_.expect_symbol(")");
    return names;
  }

  void parse_for(Block& block) {
    Statement& statement = add(block, StatementKind::loop);
    statement.names = parse_names();
    if (!in_.take_name("in")) in_.fail("a for without its 'in'");
    statement.expressions.push_back(in_.parse_tuple(false));
    statement.expressions.push_back(in_.take_name("if") ? in_.parse_expression() : nullptr);
    if (in_.at_name("recursive")) in_.fail("a recursive for is not supported");
    end_tag();
    ++loops_;
    statement.blocks.push_back(parse_block({"else", "endfor"}));
    --loops_;
    statement.blocks.emplace_back();
    if (in_.take_name("else")) {
      end_tag();
      statement.blocks.back() = parse_block({"endfor"});
    }
    close("endfor");
  }

  void parse_set(Block& block) {
    Statement& statement = add(block, StatementKind::assign);
    statement.names = parse_names();
    if (in_.take_symbol(".")) {
      statement.text = in_.expect_name("an attribute");
      if (statement.names.size() > 1) in_.fail("an attribute among several variables is not supported");
    }
    if (in_.take_symbol("=")) {
      statement.expressions.push_back(in_.parse_tuple());
      return end_tag();
    }
    if (statement.names.size() > 1 || !statement.text.empty()) in_.fail("a {% set %} of a block has one variable");
    statement.kind = StatementKind::capture;
    auto input = std::make_unique<Expression>();
    input->kind = ExpressionKind::name;
    input->line = statement.line;
    statement.expressions.push_back(in_.parse_filters(std::move(input)));
    end_tag();
    ++nested_;
    statement.blocks.push_back(parse_block({"endset"}));
    --nested_;
    close("endset");
  }

  void parse_macro(Block& block) {
    Statement& statement = add(block, StatementKind::macro);
    if (loops_ + nested_ > 0) in_.fail("a {% macro %} within a loop, a macro or a block is not supported");
    statement.macro = std::make_unique<Macro>();
    Macro& macro = *statement.macro;
    macro.name = in_.expect_name("the macro's name");
    in_.expect_symbol("(");
    while (!in_.take_symbol(")")) {
      macro.parameters.push_back(in_.expect_name("a parameter"));
      if (in_.take_symbol("="))
        macro.defaults.push_back(in_.parse_expression());
      else if (!macro.defaults.empty())
        in_.fail("a parameter without a default behind one with a default");
      if (!in_.at_symbol(")")) in_.expect_symbol(",");
    }
    end_tag();
    ++nested_;
    statement.blocks.push_back(parse_block({"endmacro"}));
    --nested_;
    macro.body = &statement.blocks.back();
    in_.take_name("endmacro");
    if (in_.at(TokenKind::name)) in_.take();  // the macro's name again
    end_tag();
  }

  void parse_generation(Block& block) {
    Statement& statement = add(block, StatementKind::generation);
    if (nested_ > 0) in_.fail("{% generation %} within a macro or a block is not supported");
    end_tag();
    ++nested_;
    statement.blocks.push_back(parse_block({"endgeneration"}));
    --nested_;
    close("endgeneration");
  }

  void parse_break(Block& block) { parse_jump(block, StatementKind::leave); }
  void parse_continue(Block& block) { parse_jump(block, StatementKind::next); }
  void parse_jump(Block& block, StatementKind kind) {
    add(block, kind);
    if (loops_ == 0) in_.fail("{% break %} and {% continue %} belong in a loop");
    end_tag();
  }

  ExpressionParser in_;
  int loops_ = 0;
  int nested_ = 0;  // macros, captured blocks and generations
};

}  // namespace

Block parse(std::string_view source, std::string_view name) {
  return Parser(source, name).parse();
}

}  // namespace quench::jinja
