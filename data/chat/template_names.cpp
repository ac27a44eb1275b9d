#include "data/chat/template_names.h"

#include <algorithm>
#include <array>
#include <optional>

#include "data/jinja/jinja_lexer.h"
#include "data/jinja/jinja_text.h"

namespace quench {
namespace {

using jinja::Token;
using jinja::TokenKind;

constexpr std::array<std::string_view, 20> kWords = {"and",
                                                     "or",
                                                     "not",
                                                     "is",
                                                     "in",
                                                     "if",
                                                     "else",
                                                     "true",
                                                     "True",
                                                     "false",
                                                     "none",
                                                     "False",
                                                     "None",
                                                     "loop",
                                                     "dict",
                                                     "self",
                                                     "namespace",
                                                     "range",
                                                     "raise_exception",
                                                     "strftime_now"};

// Arguments of Transformers and of published templates: a {% set %} in one branch is a fallback.
constexpr std::array<std::string_view, 4> kArguments = {"tools", "documents", "custom_tools", "builtin_tools"};

// Statements with a body of its own.
constexpr std::array<std::string_view, 6> kScopes = {"if", "for", "macro", "call", "filter", "with"};

class NameCollector {
 public:
  explicit NameCollector(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  TemplateNames collect() {
    for (at_ = 0; at_ < tokens_.size(); ++at_) {
      const Token& token = tokens_[at_];
      switch (token.kind) {
        case TokenKind::block_begin: begin_statement(); break;
        case TokenKind::block_end:
          ever_.insert(pending_.begin(), pending_.end());
          bound_.merge(pending_);
          pending_.clear();
          statement_.clear();
          break;
        case TokenKind::variable_begin:
          statement_.clear();
          depth_ = 0;
          break;
        case TokenKind::string: add_string(token.text); break;
        case TokenKind::symbol: add_symbol(token.text); break;
        case TokenKind::name: add_name(token.text); break;
        default: break;
      }
    }
    return std::move(names_);
  }

 private:
  [[nodiscard]] bool symbol_at(std::size_t i, std::string_view symbol) const {
    return i < tokens_.size() && tokens_[i].kind == TokenKind::symbol && tokens_[i].text == symbol;
  }
  [[nodiscard]] bool name_at(std::size_t i, std::string_view name) const {
    return i < tokens_.size() && tokens_[i].kind == TokenKind::name && tokens_[i].text == name;
  }

  void begin_statement() {
    depth_ = 0;
    statement_.clear();
    if (at_ + 1 < tokens_.size() && tokens_[at_ + 1].kind == TokenKind::name) statement_ = tokens_[++at_].text;
    targets_ = statement_ == "for" || statement_ == "set";
    if (std::ranges::find(kScopes, std::string_view(statement_)) != kScopes.end()) {
      scopes_.push_back({.outside = bound_, .in_all = {}});
    } else if (!scopes_.empty() && (statement_ == "elif" || statement_ == "else")) {
      end_branch();
      scopes_.back().has_else = statement_ == "else";
    } else if (!scopes_.empty() && statement_.starts_with("end") &&
               std::ranges::find(kScopes, std::string_view(statement_).substr(3)) != kScopes.end()) {
      end_branch();
      if (statement_ == "endif" && scopes_.back().has_else) bound_.merge(*scopes_.back().in_all);
      scopes_.pop_back();
    }
  }

  // Bound in all branches up to here; then as before the statement.
  void end_branch() {
    Scope& scope = scopes_.back();
    if (!scope.in_all) {
      scope.in_all = bound_;
    } else {
      std::erase_if(*scope.in_all, [&](const std::string& name) { return !bound_.contains(name); });
    }
    bound_ = scope.outside;
  }

  void add_string(const std::string& text) {
    names_.keys.insert(text);
    if (jinja::strip(text, {}, jinja::StripSide::both).size() >= 2) names_.literals.push_back(text);
  }

  void add_symbol(std::string_view symbol) {
    if (symbol == "(" || symbol == "[" || symbol == "{") ++depth_;
    if (symbol == ")" || symbol == "]" || symbol == "}") --depth_;
    if (symbol == "=" && statement_ == "set" && depth_ == 0) targets_ = false;
  }

  void add_name(const std::string& name) {
    if (at_ > 0 && symbol_at(at_ - 1, ".")) {
      names_.keys.insert(name);
      return;
    }
    if (targets_ && statement_ == "for") {
      if (name == "in")
        targets_ = false;
      else
        bind(name);
      return;
    }
    // A namespace attribute binds no variable.
    if (targets_ && statement_ == "set" && !symbol_at(at_ + 1, ".")) {
      pending_.insert(name);
      return;
    }
    if (statement_ == "macro") {
      const bool own = name_at(at_ - 1, "macro"), parameter = symbol_at(at_ - 1, "(") || symbol_at(at_ - 1, ",");
      if (own || (parameter && depth_ == 1)) {
        bind(name);
        if (own && !scopes_.empty()) scopes_.back().outside.insert(name);
        return;
      }
    }
    if (statement_ == "with" && depth_ == 0 && symbol_at(at_ + 1, "=")) {
      pending_.insert(name);
      return;
    }
    // Filters, tests and keyword arguments.
    const bool filter = at_ > 0 && symbol_at(at_ - 1, "|");
    const bool test =
        at_ > 0 && (name_at(at_ - 1, "is") || (name_at(at_ - 1, "not") && at_ > 1 && name_at(at_ - 2, "is")));
    const bool keyword = depth_ > 0 && symbol_at(at_ + 1, "=");
    if (filter || test || keyword || std::ranges::find(kWords, std::string_view(name)) != kWords.end()) return;
    const bool argument = std::ranges::find(kArguments, std::string_view(name)) != kArguments.end();
    if (!(argument ? bound_ : ever_).contains(name)) names_.variables.insert(name);
  }

  void bind(const std::string& name) {
    bound_.insert(name);
    ever_.insert(name);
  }

  // Names bound in a branch or block are unbound, or the caller's, elsewhere.
  struct Scope {
    TemplateNames::Names outside;
    std::optional<TemplateNames::Names> in_all;  // names of the branches so far
    bool has_else = false;
  };

  std::vector<Token> tokens_;
  std::vector<Scope> scopes_;
  std::size_t at_ = 0;
  std::string statement_;
  bool targets_ = false;                  // names are bound here
  int depth_ = 0;                         // brackets
  TemplateNames::Names bound_, pending_;  // pending: bound at the end of the tag
  TemplateNames::Names ever_;             // bound anywhere before
  TemplateNames names_;
};

}  // namespace

TemplateNames template_names(std::string_view source, const std::string& name) {
  return NameCollector(jinja::tokenize(source, name)).collect();
}

}  // namespace quench
