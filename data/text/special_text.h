#pragma once
// Special tokens that occur in texts as characters.

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

  // Counts those in pieces whose text does not become special tokens.
  void count(std::span<const Document> documents);
  // How often each was met.
  [[nodiscard]] const std::map<std::string, std::uint64_t>& found() const noexcept { return found_; }
  // A warning for all of them. At most ten are named.
  [[nodiscard]] std::string warning() const;

 private:
  AddedTokens tokens_;
  std::map<std::string, std::uint64_t> found_;
};

}  // namespace quench
