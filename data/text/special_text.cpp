#include "data/text/special_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace quench {
namespace {

constexpr std::size_t kNamedTokens = 10;

AddedTokens special_tokens_of(const Tokenizer& tokenizer) {
  std::vector<AddedToken> tokens;
  for (std::int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    if (!tokenizer.is_special(token)) continue;
    std::string text = tokenizer.token_text(token);
    if (text.empty() || text.size() > AddedTokens::kMaxContent) continue;
    tokens.push_back({.id = token, .content = std::move(text), .special = true});
  }
  return AddedTokens(std::move(tokens));
}

}  // namespace

SpecialTextCounter::SpecialTextCounter(const Tokenizer& tokenizer) : tokens_(special_tokens_of(tokenizer)) {}

void SpecialTextCounter::count(std::span<const Document> documents) {
  if (tokens_.empty()) return;
  for (const Document& document : documents) {
    if (document.complete) continue;
    for (const DocumentPiece& piece : document.pieces) {
      if (piece.markup) continue;
      for (const AddedTokens::Segment& segment : tokens_.split(piece.text, true))
        if (segment.id >= 0) ++found_[std::string(segment.text)];
    }
  }
}

std::string SpecialTextCounter::warning() const {
  std::vector<std::pair<std::string, std::uint64_t>> ordered(found_.begin(), found_.end());
  std::ranges::stable_sort(ordered, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> named;
  for (const auto& [token, count] : ordered)
    if (named.size() < kNamedTokens) named.push_back(fmt::format("{} ({} times)", token, count));
  const std::string more =
      ordered.size() > kNamedTokens ? fmt::format(" and {} more", ordered.size() - kNamedTokens) : "";
  return fmt::format(
      "special tokens occur in text files and stay plain text there: {}{}; if they are markup, set data.special_text "
      "(--special-text) to tokens; to keep them as text without this warning, to text",
      fmt::join(named, ", "), more);
}

}  // namespace quench
