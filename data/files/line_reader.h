#pragma once
// Bounded memory: a line above the limit is reported and skipped.

#include <cstdint>
#include <string>

#include "data/files/text_input.h"

namespace quench {

class LineReader {
 public:
  // `input` is unread and outlives the reader.
  LineReader(TextInput& input, std::uint64_t max_line_bytes);

  // Without "\n", "\r\n" or line_end_of() the text; an unterminated last line counts. Skips a UTF-8 byte order mark.
  // False at the end. Throws the errors of TextInput::read.
  bool next();
  // Empty if too_long().
  [[nodiscard]] const std::string& text() const noexcept { return line_; }
  [[nodiscard]] bool too_long() const noexcept { return too_long_; }
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }  // 1-based
  // Stored bytes up to the line's end; interpolated in compressed blocks.
  [[nodiscard]] std::uint64_t consumed() const noexcept { return span_.at(position_, block_.size()); }

 private:
  bool fill();

  TextInput& input_;
  std::uint64_t limit_;
  char end_;
  StoredSpan span_;
  std::string block_;
  std::size_t position_ = 0;
  std::string line_;
  bool too_long_ = false;
  std::uint64_t number_ = 0;
};

}  // namespace quench
