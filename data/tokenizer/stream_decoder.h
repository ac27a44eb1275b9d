#pragma once
// Incremental decoder; never splits a character.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "data/tokenizer/tokenizer.h"

namespace quench {

class StreamDecoder {
 public:
  // The tokenizer must outlive it.
  explicit StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options = {})
      : tokenizer_(&tokenizer), options_(options) {}

  // Pending bytes except a suffix that may become a character, or a space that the end drops; invalid bytes verbatim.
  // Results of push and finish concatenate to Tokenizer::decode.
  [[nodiscard]] std::string push(std::int32_t id);
  // Valid UTF-8: invalid bytes become U+FFFD (Tokenizer::has_byte_fallback()), independent of the split into calls.
  [[nodiscard]] std::string push_text(std::int32_t id) { return valid(push(id)); }
  [[nodiscard]] std::string finish_text() { return valid(finish()); }
  // Without text.
  void skip(std::span<const std::int32_t> ids) {
    for (const std::int32_t id : ids) (void)push(id);
  }
  // Pending bytes; resets to the start of a text.
  [[nodiscard]] std::string finish();

 private:
  [[nodiscard]] std::string valid(std::string_view text) const;

  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  bool at_start_ = true;
  std::string held_back_;
  bool final_space_ = false;  // held back
};

}  // namespace quench
