#pragma once
// Decodes ids one at a time, as generation yields them, without cutting a character in two.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "data/tokenizer/tokenizer.h"

namespace quench {

class StreamDecoder {
 public:
  // The tokenizer must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // The text that is complete with this id: all bytes not returned before, except a suffix that may still become a
  // character. Bytes that cannot are returned as they are. What push and finish return is together what
  // Tokenizer::decode returns for the ids.
  [[nodiscard]] std::string push(std::int32_t id);
  // The same as valid UTF-8: bytes that are no part of a character become U+FFFD as Tokenizer::has_byte_fallback()
  // says, across calls as in the text as a whole.
  [[nodiscard]] std::string push_text(std::int32_t id) { return valid(push(id)); }
  [[nodiscard]] std::string finish_text() { return valid(finish()); }
  // Goes on behind these ids without returning their text.
  void skip(std::span<const std::int32_t> ids) {
    for (const std::int32_t id : ids) (void)push(id);
  }
  // What was held back. The decoder is then at the start of a new text.
  [[nodiscard]] std::string finish();

 private:
  [[nodiscard]] std::string valid(std::string_view text) const;

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool at_start_ = true;
  std::string held_back_;
};

}  // namespace quench
