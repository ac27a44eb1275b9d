#pragma once
// Incremental decoder for generation; never splits a character.

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

  // Text completed by this id: all pending bytes except a suffix that may still become a character. Invalid bytes are
  // returned verbatim. The concatenated results of push and finish equal Tokenizer::decode.
  [[nodiscard]] std::string push(std::int32_t id);
  // Same as valid UTF-8: invalid bytes become U+FFFD (Tokenizer::has_byte_fallback()), independent of the split into
  // calls.
  [[nodiscard]] std::string push_text(std::int32_t id) { return valid(push(id)); }
  [[nodiscard]] std::string finish_text() { return valid(finish()); }
  // Consumes these ids without returning their text.
  void skip(std::span<const std::int32_t> ids) {
    for (const std::int32_t id : ids) (void)push(id);
  }
  // Pending bytes; resets the decoder to the start of a text.
  [[nodiscard]] std::string finish();

 private:
  [[nodiscard]] std::string valid(std::string_view text) const;

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool at_start_ = true;
  std::string held_back_;
};

}  // namespace quench
