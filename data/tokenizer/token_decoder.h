#pragma once
// The decoder of a tokenizer.json: how tokens become text again.
//
// Accepted: ByteLevel; Metaspace; a Sequence of Replace, ByteFallback and Fuse in the order that SentencePiece models
// are converted to, with a Strip of at most one leading space at its end.

#include <string>
#include <string_view>

#include "core/json/json.h"

namespace quench {

class TokenDecoder {
 public:
  // Throws unsupported for a decoder that is not accepted, naming it and its line. null is none, and not accepted.
  explicit TokenDecoder(const Json* description);

  // Tokens are bytes, not text in which something stands for a space.
  [[nodiscard]] bool is_byte_level() const noexcept { return byte_level_; }

  // Appends what a token stands for; `at_start`: no token stands before it.
  void append(std::string_view token, bool at_start, std::string& text) const;

 private:
  void add_component(const Json& component);

  // What is left out at the beginning of a text.
  enum class Start : std::uint8_t { whole, without_space, without_marks };

  bool byte_level_ = false;
  bool byte_tokens_ = false;  // <0x0A> is a byte
  bool fused_ = false;
  std::string mark_, replacement_;  // each mark becomes the replacement; empty: none
  Start start_ = Start::whole;
};

}  // namespace quench
