#pragma once
// Search for the texts of a tokenizer's special tokens.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace quench {

class SpecialTokens {
 public:
  SpecialTokens() = default;
  explicit SpecialTokens(std::vector<std::string> tokens);
  explicit SpecialTokens(const Tokenizer& tokenizer);

  // Longest token at byte `at`; empty: none. View into this object.
  [[nodiscard]] std::string_view at(std::string_view text, std::size_t at) const;
  struct Occurrence {
    std::size_t begin = 0, end = 0;
  };
  // Leftmost-longest, non-overlapping occurrences.
  [[nodiscard]] std::vector<Occurrence> find(std::string_view text) const;
  // Occurrence with `byte` strictly inside; begin == end: none.
  [[nodiscard]] Occurrence around(std::string_view text, std::size_t byte) const;
  // True if the text, trailing white space removed, ends with a special token.
  [[nodiscard]] bool ends(std::string_view text) const;
  // True if the text ends with a special token and consists of special tokens and white space only.
  [[nodiscard]] bool alone(std::string_view text) const;
  [[nodiscard]] bool contains(std::string_view token) const;

 private:
  std::vector<std::string> tokens_;
  std::string starts_;
  std::size_t longest_ = 0;
};

}  // namespace quench
