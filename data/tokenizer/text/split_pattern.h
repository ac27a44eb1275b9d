#pragma once
// Pre-tokenization by regular expressions (PCRE2). Only published expressions are accepted, by exact text: arbitrary
// ones risk catastrophic backtracking, these match in linear time. Character classes follow Unicode 16; ranges missing
// in PCRE2 are added.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/text/piece_sink.h"

namespace quench {

class SplitPattern {
 public:
  // Pattern with exactly this published expression; nullptr: none.
  static const SplitPattern* find(std::string_view expression);
  // By name: "gpt2", "llama3", "qwen2", "o200k", ...; throws invalid_argument listing the names.
  static const SplitPattern& named(std::string_view name);
  static std::vector<std::string> names();

  [[nodiscard]] std::string_view name() const noexcept { return name_; }
  [[nodiscard]] std::string_view expression() const noexcept { return expression_; }
  // True if the matches of any text are gapless.
  [[nodiscard]] bool matches_everything() const noexcept { return matches_everything_; }

  // Emits, in order, the matches and the non-empty text between them; concatenated they equal `text`, well-formed
  // UTF-8. Thread-safe. Throws failed on PCRE2 errors.
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
