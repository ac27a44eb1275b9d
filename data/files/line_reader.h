#pragma once
// Lines of a text in bounded memory: a line above the limit is reported and skipped without being held.

#include <cstdint>
#include <string>

#include "data/files/text_input.h"

namespace quench {

class LineReader {
 public:
  // `input`, nothing of which has been read, must outlive the reader.
  LineReader(TextInput& input, std::uint64_t max_line_bytes);

  // Moves to the next line, without its "\n" or "\r\n"; a last line without one counts. A UTF-8 byte order mark at the
  // start of the file is left out. False at the end. Throws what TextInput::read throws.
  bool next();
  // The line; empty when too_long().
  [[nodiscard]] const std::string& text() const noexcept { return line_; }
  [[nodiscard]] bool too_long() const noexcept { return too_long_; }
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }  // 1-based
  // Bytes of the stored file up to the end of the line; where it is packed, in proportion to the block's text.
  [[nodiscard]] std::uint64_t consumed() const noexcept { return span_.at(position_, block_.size()); }

 private:
  bool fill();

  TextInput& input_;
  std::uint64_t limit_;
  StoredSpan span_;  // of the block
  std::string block_;
  std::size_t position_ = 0;
  std::string line_;
  bool too_long_ = false;
  std::uint64_t number_ = 0;
};

}  // namespace quench
