#pragma once
// Added tokens, matched in the text before splitting and merging: special tokens such as <|begin_of_text|> and other
// entries of added_tokens. Semantics of Hugging Face tokenizers.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quench {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  // no word character directly before or after
  bool lstrip = false;       // includes preceding white space
  bool rstrip = false;       // includes following white space
  bool normalized = false;   // matched in normalized text, by its normalized form
  bool special = false;      // control token: not matched in untrusted text, skipped in decoding on request
};

// Leftmost-longest matcher, linear time in the text for a fixed token set.
class AddedTokens {
 public:
  AddedTokens() = default;
  // Contents are matched verbatim: non-empty, at most kMaxContent bytes.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  static constexpr std::size_t kMaxContent = 1024;

  struct Segment {
    std::string_view text;  // bytes between tokens, or a token with its stripped white space
    std::int32_t id = -1;   // -1: text between tokens
  };

  [[nodiscard]] bool empty() const noexcept { return tokens_.empty(); }

  // Splits any bytes at the tokens. `parse_special` false: special tokens are plain text.
  [[nodiscard]] std::vector<Segment> split(std::string_view text, bool parse_special) const;

 private:
  struct Node {
    std::vector<std::pair<std::uint8_t, std::uint32_t>> children;  // byte, node
    std::int32_t token = -1;
  };
  struct Match {
    std::size_t start, end;
    const AddedToken* token;  // null: no match
  };

  [[nodiscard]] Match find(std::string_view text, std::size_t from) const;
  [[nodiscard]] static bool stands_alone(std::string_view text, const Match& match);

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> by_first_byte_;  // 0: none
};

}  // namespace quench
