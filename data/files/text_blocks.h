#pragma once
// The characters of a text one after the other, in bounded memory, with the line of each and its place in the file.

#include <cstdint>
#include <string>

#include "data/files/text_input.h"

namespace quench {

class TextBlocks {
 public:
  // `input`, nothing of which has been read, must outlive the object. A UTF-8 byte order mark is left out.
  explicit TextBlocks(TextInput& input) : input_(input) {
    if (peek() >= 0 && block_.starts_with("\xEF\xBB\xBF")) at_ = 3;
  }

  // The next byte; -1 at the end. Throws what TextInput::read throws.
  [[nodiscard]] int peek() { return at_ < block_.size() || fill() ? static_cast<unsigned char>(block_[at_]) : -1; }
  // Passes over the byte that peek() gave.
  void take() {
    if (block_[at_] == '\n') ++line_;
    ++at_;
  }
  void skip_blanks() {
    for (int c = peek(); c == ' ' || c == '\t' || c == '\r' || c == '\n'; c = peek()) take();
  }
  [[nodiscard]] std::uint64_t line() const noexcept { return line_; }  // of the next byte, counted from 1
  // Bytes of the stored file up to the next byte; where it is packed, in proportion to the block's text.
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
  StoredSpan span_;  // of the block
  std::string block_;
  std::size_t at_ = 0;
  std::uint64_t line_ = 1;
};

}  // namespace quench
