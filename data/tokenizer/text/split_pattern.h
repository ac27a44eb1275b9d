#pragma once
// Regular expressions that cut text into the pieces within which BPE merges.
//
// A tokenizer file brings its expression as text. Running foreign expressions invites catastrophic backtracking, so
// only published ones are accepted, all of which match in linear time; PCRE2 runs them. Character classes follow
// Unicode 16: what PCRE2's tables do not know yet is added when the expression is compiled.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/text/piece_sink.h"

namespace quench {

class SplitPattern {
 public:
  // The pattern whose published expression is exactly `expression`; nullptr if there is none.
  static const SplitPattern* find(std::string_view expression);
  // By name: "gpt2", "llama3", "qwen2", "o200k", ...; throws invalid_argument listing the names.
  static const SplitPattern& named(std::string_view name);
  static std::vector<std::string> names();

  [[nodiscard]] std::string_view name() const noexcept { return name_; }
  [[nodiscard]] std::string_view expression() const noexcept { return expression_; }
  // Whether the matches of any text follow each other without a gap.
  [[nodiscard]] bool matches_everything() const noexcept { return matches_everything_; }

  // Passes on, in order, the matches and the non-empty stretches between them; together they are `text`, which must
  // be well-formed UTF-8. Thread-safe. Throws failed if PCRE2 gives up.
  void split(std::string_view text, const PieceSink& sink) const;

  SplitPattern(std::string_view name, std::string_view expression, bool matches_everything);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;

 private:
  struct Compiled;
  std::string_view name_;
  std::string_view expression_;
  bool matches_everything_;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace quench
