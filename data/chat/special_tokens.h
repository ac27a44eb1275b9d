#pragma once
// The texts of a tokenizer's special tokens, to be found in other texts.

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
  // All special tokens of the tokenizer.
  explicit SpecialTokens(const Tokenizer& tokenizer);

  // The token that begins at byte `at`, the longest of several; empty: none. Refers to this object.
  [[nodiscard]] std::string_view at(std::string_view text, std::size_t at) const;
  struct Occurrence {
    std::size_t begin = 0, end = 0;
  };
  // Leftmost, longest occurrences, which do not overlap.
  [[nodiscard]] std::vector<Occurrence> find(std::string_view text) const;
  // The occurrence with `byte` strictly inside; begin == end: none.
  [[nodiscard]] Occurrence around(std::string_view text, std::size_t byte) const;
  // Whether the text, without white space at its end, ends with one.
  [[nodiscard]] bool ends(std::string_view text) const;
  // Whether the text ends with one and holds nothing but special tokens and white space.
  [[nodiscard]] bool alone(std::string_view text) const;
  [[nodiscard]] bool contains(std::string_view token) const;

 private:
  std::vector<std::string> tokens_;
  std::string starts_;  // first bytes
  std::size_t longest_ = 0;
};

}  // namespace quench
