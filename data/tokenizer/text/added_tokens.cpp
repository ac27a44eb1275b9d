#include "data/tokenizer/text/added_tokens.h"

#include <algorithm>
#include <limits>

#include "core/system/check.h"
#include "core/system/utf8.h"
#include "data/tokenizer/text/code_points.h"
#include "data/tokenizer/text/unicode.h"

namespace quench {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// Well-formed, ending at `end`; or kNone.
std::size_t character_before(std::string_view text, std::size_t end) {
  for (std::size_t length = 1; length <= 4 && length <= end; ++length) {
    if (utf8_sequence_length(text.substr(0, end), end - length) == length) return end - length;
  }
  return kNone;
}

std::size_t skip_white_space(std::string_view text, std::size_t at) {
  while (at < text.size() && utf8_sequence_length(text, at) != 0 && is_white_space(decode_code_point(text, at))) {
    at += code_point_length(text, at);
  }
  return at;
}

// Ending at `at`, not before `stop`.
std::size_t skip_white_space_back(std::string_view text, std::size_t at, std::size_t stop) {
  while (at > stop) {
    const std::size_t start = character_before(text, at);
    if (start == kNone || start < stop || !is_white_space(decode_code_point(text, start))) break;
    at = start;
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), nodes_(1), by_first_byte_(256) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    QUENCH_CHECK(!content.empty() && content.size() <= kMaxContent,
                 "added token {}: its content has {} bytes, expected 1 to {}", tokens_[i].id, content.size(),
                 kMaxContent);
    std::uint32_t node = 0;
    for (const char character : content) {
      const auto byte = static_cast<std::uint8_t>(character);
      auto& children = nodes_[node].children;
      const auto child = std::ranges::find(children, byte, [](const auto& edge) { return edge.first; });
      if (child != children.end()) {
        node = child->second;
      } else {
        const auto added = static_cast<std::uint32_t>(nodes_.size());
        children.emplace_back(byte, added);
        nodes_.emplace_back();
        node = added;
      }
    }
    nodes_[node].token = static_cast<std::int32_t>(i);
  }
  for (const auto& [byte, node] : nodes_[0].children) by_first_byte_[byte] = node;
}

AddedTokens::Match AddedTokens::find(std::string_view text, std::size_t from) const {
  for (std::size_t start = from; start < text.size(); ++start) {
    std::uint32_t node = by_first_byte_[static_cast<std::uint8_t>(text[start])];
    Match best{start, start, nullptr};
    for (std::size_t at = start + 1; node != 0; ++at) {
      const Node& reached = nodes_[node];
      if (reached.token >= 0) best = {start, at, &tokens_[static_cast<std::size_t>(reached.token)]};
      node = 0;
      if (at == text.size()) break;
      for (const auto& [byte, child] : reached.children) {
        if (byte == static_cast<std::uint8_t>(text[at])) node = child;
      }
    }
    if (best.token != nullptr) return best;
  }
  return {text.size(), text.size(), nullptr};
}

bool AddedTokens::stands_alone(std::string_view text, const Match& match) {
  const std::size_t before = character_before(text, match.start);
  if (before != kNone && is_word_character(decode_code_point(text, before))) return false;
  return match.end == text.size() || utf8_sequence_length(text, match.end) == 0 ||
         !is_word_character(decode_code_point(text, match.end));
}

std::vector<AddedTokens::Segment> AddedTokens::split(std::string_view text, bool parse_special) const {
  std::vector<Segment> segments;
  std::size_t done = 0;  // in segments
  if (!empty()) {
    for (Match match = find(text, 0); match.token != nullptr; match = find(text, match.end)) {
      const AddedToken& token = *match.token;
      if (token.special && !parse_special) continue;
      if (token.single_word && !stands_alone(text, match)) continue;
      // Not consumed twice.
      const std::size_t start =
          token.lstrip ? skip_white_space_back(text, match.start, std::min(done, match.start)) : match.start;
      const std::size_t end = token.rstrip ? skip_white_space(text, match.end) : match.end;
      if (start > done) segments.push_back({text.substr(done, start - done), -1});
      segments.push_back({text.substr(start, end - start), token.id});
      done = end;
    }
  }
  if (done < text.size()) segments.push_back({text.substr(done), -1});
  return segments;
}

}  // namespace quench
