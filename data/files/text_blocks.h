#pragma once
// Characters in bounded memory, with line numbers (line ends: "\n", "\r\n" or "\r") and file positions.

#include <cstdint>
#include <string>

#include "data/files/text_input.h"

namespace quench {

class TextBlocks {
 public:
  // `input` is unread and outlives the object. Skips a UTF-8 byte order mark.
  explicit TextBlocks(TextInput& input) : input_(input) {
    if (peek() >= 0 && block_.starts_with("\xEF\xBB\xBF")) at_ = 3;
  }

  // -1 at the end. Throws the errors of TextInput::read.
  [[nodiscard]] int peek() { return at_ < block_.size() || fill() ? static_cast<unsigned char>(block_[at_]) : -1; }
  void take() {
    const char c = block_[at_++];
    if (c == '\n' ? last_ != '\r' : c == '\r') ++line_;
    last_ = c;
  }
  void skip_blanks() {
    for (int c = peek(); c == ' ' || c == '\t' || c == '\r' || c == '\n'; c = peek()) take();
  }
  [[nodiscard]] std::uint64_t line() const noexcept { return line_; }  // line of the next byte, 1-based
  // Stored bytes up to the next byte; interpolated in compressed blocks.
  [[nodiscard]] std::uint64_t consumed() const noexcept { return span_.at(at_, block_.size()); }

 private:
  bool fill() {
    block_.resize(std::size_t{1} << 20);
    span_.begin = input_.position();
    block_.resize(input_.read(std::as_writable_bytes(std::span(block_))));
    span_.end = input_.position();
    at_ = 0;
    return !block_.empty();
  }

  TextInput& input_;
  StoredSpan span_;
  std::string block_;
  std::size_t at_ = 0;
  std::uint64_t line_ = 1;
  char last_ = 0;  // taken
};

}  // namespace quench
