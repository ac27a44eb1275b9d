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
  // To a tag starting with one of these words, left current; without words, to the end.
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
  // Closing word and the end of its tag.
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
        {"with", &Parser::parse_with},
        {"macro", &Parser::parse_macro},
        {"call", &Parser::parse_call},
        {"filter", &Parser::parse_filter},
        {"block", &Parser::parse_block_statement},
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

  // Name, namespace attribute (with `attributes`), or bracketed tuple.
  Target parse_target(bool attributes) {
    const ExpressionParser::Level level(in_);
    Target target;
    if (in_.take_symbol("(")) {
      target = parse_targets(attributes);
      in_.expect_symbol(")");
      return target;
    }
    target.name = in_.expect_name("a variable");
    if (attributes && in_.take_symbol(".")) target.attribute = in_.expect_name("an attribute");
    return target;
  }

  Target parse_targets(bool attributes) {
    Target first = parse_target(attributes);
    if (!in_.at_symbol(",")) return first;
    Target targets;
    targets.parts.push_back(std::move(first));
    while (in_.take_symbol(",")) {
      if (in_.at_name("in") || in_.at_symbol("=") || in_.at_symbol(")")) break;
      targets.parts.push_back(parse_target(attributes));
    }
    return targets;
  }

  void parse_for(Block& block) {
    Statement& statement = add(block, StatementKind::loop);
    statement.target = parse_targets(false);
    if (!in_.take_name("in")) in_.fail("a for without its 'in'");
    statement.expressions.push_back(in_.parse_tuple(false));
    statement.expressions.push_back(in_.take_name("if") ? in_.parse_expression() : nullptr);
    statement.recursive = in_.take_name("recursive");
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

  // Without {% generation %}: output is not written directly.
  void parse_captured(Statement& statement, std::string_view end) {
    end_tag();
    ++nested_;
    statement.blocks.push_back(parse_block({end}));
    --nested_;
    close(end);
  }

  // The empty name: the block's text.
  static ExpressionPtr block_text(const Statement& statement) {
    auto input = std::make_unique<Expression>();
    input->kind = ExpressionKind::name;
    input->line = statement.line;
    return input;
  }

  void parse_set(Block& block) {
    Statement& statement = add(block, StatementKind::assign);
    statement.target = parse_targets(true);
    if (in_.take_symbol("=")) {
      statement.expressions.push_back(in_.parse_tuple());
      return end_tag();
    }
    if (!statement.target.parts.empty()) in_.fail("a {% set %} of a block has one variable");
    statement.kind = StatementKind::capture;
    statement.expressions.push_back(in_.parse_filters(block_text(statement)));
    parse_captured(statement, "endset");
  }

  void parse_filter(Block& block) {
    Statement& statement = add(block, StatementKind::filter);
    statement.expressions.push_back(in_.parse_filters(in_.parse_filter(block_text(statement))));
    parse_captured(statement, "endfilter");
  }

  void parse_with(Block& block) {
    Statement& statement = add(block, StatementKind::with);
    while (!in_.at(TokenKind::block_end)) {
      if (!statement.expressions.empty()) in_.expect_symbol(",");
      statement.target.parts.push_back(parse_target(false));
      in_.expect_symbol("=");
      statement.expressions.push_back(in_.parse_expression());
    }
    end_tag();
    statement.blocks.push_back(parse_block({"endwith"}));
    close("endwith");
  }

  void parse_parameters(Macro& macro) {
    in_.expect_symbol("(");
    while (!in_.take_symbol(")")) {
      macro.parameters.push_back(in_.expect_name("a parameter"));
      if (in_.take_symbol("="))
        macro.defaults.push_back(in_.parse_expression());
      else if (!macro.defaults.empty())
        in_.fail("a parameter without a default after one with a default");
      if (!in_.at_symbol(")")) in_.expect_symbol(",");
    }
  }

  void parse_macro_body(Statement& statement, std::string_view end) {
    Macro& macro = *statement.macro;
    const std::size_t more = in_.uses("varargs"), keywords = in_.uses("kwargs"), caller = in_.uses("caller");
    const int loops = std::exchange(loops_, 0);
    end_tag();
    ++nested_;
    statement.blocks.push_back(parse_block({end}));
    --nested_;
    loops_ = loops;
    macro.takes_more = in_.uses("varargs") > more;
    macro.takes_keywords = in_.uses("kwargs") > keywords;
    macro.takes_caller = in_.uses("caller") > caller;
    macro.body = &statement.blocks.back();
    in_.take_name(end);
  }

  void parse_macro(Block& block) {
    Statement& statement = add(block, StatementKind::macro);
    statement.macro = std::make_unique<Macro>();
    statement.macro->name = in_.expect_name("the macro's name");
    parse_parameters(*statement.macro);
    parse_macro_body(statement, "endmacro");
    if (in_.at(TokenKind::name)) in_.take();  // repeated macro name
    end_tag();
  }

  void parse_call(Block& block) {
    Statement& statement = add(block, StatementKind::call);
    statement.macro = std::make_unique<Macro>();
    statement.macro->name = "caller";
    if (in_.at_symbol("(")) parse_parameters(*statement.macro);
    statement.expressions.push_back(in_.parse_expression());
    if (statement.expressions[0]->kind != ExpressionKind::call) in_.fail("{% call %} without a call");
    parse_macro_body(statement, "endcall");
    end_tag();
  }

  // No inheritance: in place, with the template's variables only.
  void parse_block_statement(Block& block) {
    Statement& statement = add(block, StatementKind::scope);
    if (loops_ + nested_ > 0) in_.fail("a {% block %} within a loop, a macro or a block is not supported");
    in_.expect_name("the block's name");
    in_.take_name("scoped");
    end_tag();
    statement.blocks.push_back(parse_block({"endblock"}));
    in_.take_name("endblock");
    if (in_.at(TokenKind::name)) in_.take();
    end_tag();
  }

  void parse_generation(Block& block) {
    Statement& statement = add(block, StatementKind::generation);
    if (nested_ > 0) in_.fail("{% generation %} within a macro or a block is not supported");
    parse_captured(statement, "endgeneration");
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
