#pragma once
// Count of special token texts that remain plain text in documents.

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "data/text/document.h"
#include "data/tokenizer/text/added_tokens.h"
#include "data/tokenizer/tokenizer.h"

namespace quench {

class SpecialTextCounter {
 public:
  explicit SpecialTextCounter(const Tokenizer& tokenizer);

  // In pieces without special token parsing.
  void count(std::span<const Document> documents);
  [[nodiscard]] const std::map<std::string, std::uint64_t>& found() const noexcept { return found_; }
  // At most ten are named.
  [[nodiscard]] std::string warning() const;

 private:
  AddedTokens tokens_;
  std::map<std::string, std::uint64_t> found_;
};

}  // namespace quench
