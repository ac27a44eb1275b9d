#pragma once
// Texts of special tokens, and their occurrences in other texts.

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

  // Longest at byte `at`, a view into this object; or empty.
  [[nodiscard]] std::string_view at(std::string_view text, std::size_t at) const;
  struct Occurrence {
    std::size_t begin = 0, end = 0;
  };
  // Leftmost-longest, non-overlapping.
  [[nodiscard]] std::vector<Occurrence> find(std::string_view text) const;
  // `byte` strictly inside; begin == end: none.
  [[nodiscard]] Occurrence around(std::string_view text, std::size_t byte) const;
  // Apart from trailing white space.
  [[nodiscard]] bool ends(std::string_view text) const;
  // Only special tokens and white space, a token last.
  [[nodiscard]] bool alone(std::string_view text) const;
  [[nodiscard]] bool contains(std::string_view token) const;

 private:
  std::vector<std::string> tokens_;
  std::string starts_;
  std::size_t longest_ = 0;
};

}  // namespace quench
