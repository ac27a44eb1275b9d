#pragma once
// Pre-tokenization by PCRE2. Only published expressions, by exact text: they match in linear time, others risk
// catastrophic backtracking. Unicode 16; ranges missing in PCRE2 are added.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/text/piece_sink.h"

namespace quench {

class SplitPattern {
 public:
  // Or nullptr.
  static const SplitPattern* find(std::string_view expression);
  // "gpt2", "llama3", "qwen2", "o200k", ...; throws invalid_argument listing the names.
  static const SplitPattern& named(std::string_view name);
  static std::vector<std::string> names();

  [[nodiscard]] std::string_view name() const noexcept { return name_; }
  [[nodiscard]] std::string_view expression() const noexcept { return expression_; }
  // Gapless.
  [[nodiscard]] bool matches_everything() const noexcept { return matches_everything_; }

  // Matches and text between, in order; concatenated they equal `text`, well-formed UTF-8. Thread-safe. Throws failed
  // on PCRE2 errors.
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
