#pragma once
// Grammars of answers: the tokens that may come next, so that a text keeps to a JSON schema or a regular expression.
//
// A text that ends with one of its stop tokens is complete: a JSON value that the schema accepts, or a match of the
// whole expression. Tokens without text (control tokens) are never part of it. Texts cut off by their length are
// incomplete.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/grammar/rehearsal.h"

namespace quench {

// Texts of a model's tokens.
struct GrammarVocabulary {
  std::vector<std::string> texts;         // bytes, by token; one for each logit; empty: not part of a text
  std::vector<std::int64_t> stop_tokens;  // end of a text, whatever their texts are
};

// Tokens that may follow one text. One thread at a time.
class GrammarMatcher {
 public:
  virtual ~GrammarMatcher() = default;

  // The text continues with this token, which has to be one of those allowed; not after a stop token. Throws failed.
  virtual void accept(std::int32_t token) = 0;
  // Bits of the tokens that may be next, stop tokens exactly where the text is complete: token i is bit i % 32 of word
  // i / 32, and bits beyond the vocabulary are 0. False if there are none.
  [[nodiscard]] virtual bool find_allowed(std::span<std::int32_t> words) = 0;
  [[nodiscard]] virtual bool is_complete() const = 0;
};

// Compiled grammar. Const members are thread-safe.
class Grammar {
 public:
  virtual ~Grammar() = default;

  // For a text that ends with one of these of the vocabulary's stop tokens.
  [[nodiscard]] virtual std::unique_ptr<GrammarMatcher> begin(std::span<const std::int64_t> stop_tokens) const = 0;
  [[nodiscard]] virtual std::int64_t vocabulary_size() const = 0;
};

enum class GrammarKind {
  json,         // any JSON value; without source
  json_object,  // any JSON object; without source
  json_schema,  // keywords of schema_keywords.h; properties come in the schema's order
  regex,        // ECMAScript, of the whole text
};

// Grammar before it is compiled.
struct GrammarSource {
  GrammarKind kind = GrammarKind::json;
  std::string text{};  // schema or expression
};

// Largest GrammarSource::text.
inline constexpr std::size_t kMostGrammarBytes = std::size_t{128} << 10;

// Compiler for one vocabulary, which keeps the last grammars. Const members are thread-safe.
class GrammarCompiler {
 public:
  // Throws unsupported in a build without XGrammar, bad_config if no token has a text.
  explicit GrammarCompiler(const GrammarVocabulary& vocabulary, const RehearsalLimits& limits = {});
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Throws bad_config for a faulty source, one with a keyword that cannot be kept to, and one that takes too much time
  // or memory.
  [[nodiscard]] std::shared_ptr<const Grammar> compile(const GrammarSource& source) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Library that compiles grammars.
class GrammarLibrary {
 public:
  virtual ~GrammarLibrary() = default;
  // A schema has passed check_schema(). Throws bad_config.
  [[nodiscard]] virtual std::shared_ptr<const Grammar> compile(const GrammarSource& source) const = 0;
};

// Set by the library's file, before main; null in a build without it.
using OpenGrammarLibrary = std::unique_ptr<GrammarLibrary> (*)(const GrammarVocabulary& vocabulary);
extern constinit OpenGrammarLibrary open_grammar_library;

}  // namespace quench
