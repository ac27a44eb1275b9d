#pragma once
// Decoder of a tokenizer.json: tokens to text.
//
// Supported: ByteLevel; Metaspace; the Sequence of converted SentencePiece models: Replace, ByteFallback and Fuse, then
// an optional Strip of at most one leading space.

#include <string>
#include <string_view>

#include "core/json/json.h"

namespace quench {

class TokenDecoder {
 public:
  // Throws unsupported with the component and its line; null (none) is unsupported.
  explicit TokenDecoder(const Json* description);

  // Tokens are bytes, not text with a space replacement.
  [[nodiscard]] bool is_byte_level() const noexcept { return byte_level_; }

  // Appends the text of a token; `at_start`: no token before it.
  void append(std::string_view token, bool at_start, std::string& text) const;

 private:
  void add_component(const Json& component);

  enum class Start : std::uint8_t { whole, without_space, without_marks };

  bool byte_level_ = false;
  bool byte_tokens_ = false;
  bool fused_ = false;
  std::string mark_, replacement_;  // mark -> replacement; empty: none
  Start start_ = Start::whole;
};

}  // namespace quench
