#pragma once
// Tokens that are found in the text itself before any splitting or merging: special tokens such as <|begin_of_text|>
// and whatever else a tokenizer lists under added_tokens. Semantics of Hugging Face tokenizers.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quench {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character stands directly before or after it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and after it
  bool normalized = false;   // its normalized form is looked for, in normalized text
  bool special = false;      // a control token: not looked for in untrusted text, left out when decoding if asked
};

// Finds the leftmost, then longest, of a set of tokens, in time linear in the text for any fixed set.
class AddedTokens {
 public:
  AddedTokens() = default;
  // Contents are looked for as they are given; they must not be empty, and no longer than kMaxContent bytes.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  static constexpr std::size_t kMaxContent = 1024;

  struct Segment {
    std::string_view text;  // bytes between tokens, or the token with the white space that it took along
    std::int32_t id = -1;   // the token's id; -1 for text between tokens
  };

  [[nodiscard]] bool empty() const noexcept { return tokens_.empty(); }

  // Splits any bytes at the tokens. `parse_special` false: occurrences of special tokens are plain text.
  [[nodiscard]] std::vector<Segment> split(std::string_view text, bool parse_special) const;

 private:
  struct Node {
    std::vector<std::pair<std::uint8_t, std::uint32_t>> children;  // byte, node
    std::int32_t token = -1;                                       // index into tokens_
  };
  struct Match {
    std::size_t start, end;
    const AddedToken* token;  // null: no match
  };

  [[nodiscard]] Match find(std::string_view text, std::size_t from) const;
  [[nodiscard]] static bool stands_alone(std::string_view text, const Match& match);

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;                   // a trie; node 0 is the root
  std::vector<std::uint32_t> by_first_byte_;  // the root's children, 0 for none
};

}  // namespace quench
