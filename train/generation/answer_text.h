#pragma once
// Text of an answer that arrives token by token.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/stream_decoder.h"
#include "train/generation/stop_texts.h"

namespace quench {

class AnswerText {
 public:
  // Continuation of `prompt`. The tokenizer must outlive it.
  AnswerText(const Tokenizer& tokenizer, const DecodeOptions& options, std::span<const std::int32_t> prompt,
             std::vector<std::string> stops)
      : decoder_(tokenizer, options), stops_(std::move(stops)) {
    decoder_.skip(prompt);
  }

  // Text that has become certain; text() includes it.
  std::string push(std::int32_t token) { return add(stops_.push(decoder_.push_text(token))); }
  // The rest, at the end of the answer.
  std::string finish() {
    std::string rest = stops_.push(decoder_.finish_text());  // incomplete UTF-8 character
    return add(rest + stops_.finish());
  }
  // A stop text was met: the answer is complete.
  [[nodiscard]] bool found() const noexcept { return stops_.found(); }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string add(std::string piece) {
    text_ += piece;
    return piece;
  }

  StreamDecoder decoder_;
  StopTexts stops_;
  std::string text_;
};

}  // namespace quench
