#pragma once
// Decoder of a tokenizer.json: ByteLevel; Metaspace; Sequence of converted SentencePiece: Replace, ByteFallback, Fuse,
// and optional Strip of one leading space.

#include <string>
#include <string_view>

#include "core/json/json.h"

namespace quench {

class TokenDecoder {
 public:
  // Throws unsupported with component and line; also for null.
  explicit TokenDecoder(const Json* description);

  // Tokens are bytes, without a space replacement.
  [[nodiscard]] bool is_byte_level() const noexcept { return byte_level_; }

  // `at_start`: first token.
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
