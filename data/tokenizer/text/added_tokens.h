#pragma once
// Added tokens (special ones such as <|begin_of_text|>, and others), matched before splitting and merging, as in
// Hugging Face tokenizers.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quench {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  // no word character around
  bool lstrip = false;       // with preceding white space
  bool rstrip = false;       // with following white space
  bool normalized = false;   // matched in normalized text
  bool special = false;      // control: not in untrusted text, may be skipped in decoding
};

// Leftmost-longest, linear time.
class AddedTokens {
 public:
  AddedTokens() = default;
  // Verbatim, non-empty, at most kMaxContent bytes.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  static constexpr std::size_t kMaxContent = 1024;

  struct Segment {
    std::string_view text;  // between tokens, or a token with stripped white space
    std::int32_t id = -1;   // -1: between tokens
  };

  [[nodiscard]] bool empty() const noexcept { return tokens_.empty(); }

  // Any bytes. `parse_special` false: special tokens are plain text.
  [[nodiscard]] std::vector<Segment> split(std::string_view text, bool parse_special) const;

 private:
  struct Node {
    std::vector<std::pair<std::uint8_t, std::uint32_t>> children;  // byte, node
    std::int32_t token = -1;
  };
  struct Match {
    std::size_t start, end;
    const AddedToken* token;  // or null
  };

  [[nodiscard]] Match find(std::string_view text, std::size_t from) const;
  [[nodiscard]] static bool stands_alone(std::string_view text, const Match& match);

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> by_first_byte_;  // 0: none
};

}  // namespace quench
