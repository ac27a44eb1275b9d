#pragma once
// Lines of a file in bounded memory: a line above the limit is reported and skipped without being held.

#include <cstdint>
#include <string>

#include "data/binary_file.h"

namespace quench {

class LineReader {
 public:
  // `file` must outlive the reader.
  LineReader(const BinaryFile& file, std::uint64_t max_line_bytes);

  // Moves to the next line, without its "\n" or "\r\n"; a last line without one counts. A UTF-8 byte order mark at the
  // start of the file is left out. False at the end. Throws what BinaryFile::read throws.
  bool next();
  // The line; empty when too_long().
  [[nodiscard]] const std::string& text() const noexcept { return line_; }
  [[nodiscard]] bool too_long() const noexcept { return too_long_; }
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }  // 1-based
  // Bytes of the file up to the end of the line.
  [[nodiscard]] std::uint64_t consumed() const noexcept { return offset_ - (block_.size() - position_); }

 private:
  bool fill();

  const BinaryFile& file_;
  std::uint64_t limit_;
  std::uint64_t offset_ = 0;  // end of the block in the file
  std::string block_;
  std::size_t position_ = 0;
  std::string line_;
  bool too_long_ = false;
  std::uint64_t number_ = 0;
};

}  // namespace quench
