#include "data/files/line_reader.h"

#include <span>

namespace quench {
namespace {
constexpr std::size_t kLineBlockBytes = std::size_t{1} << 20;
}

LineReader::LineReader(TextInput& input, std::uint64_t max_line_bytes)
    : input_(input), limit_(max_line_bytes), end_(line_end_of(input.peek())) {}

bool LineReader::fill() {
  block_.resize(kLineBlockBytes);
  span_.begin = input_.position();
  block_.resize(input_.read(std::as_writable_bytes(std::span(block_))));
  span_.end = input_.position();
  position_ = 0;
  return !block_.empty();
}

bool LineReader::next() {
  line_.clear();
  too_long_ = false;
  if (position_ == block_.size() && !fill()) return false;
  if (number_ == 0 && block_.starts_with("\xEF\xBB\xBF")) {
    position_ = 3;
    if (position_ == block_.size() && !fill()) return false;
  }
  ++number_;
  while (true) {
    const std::size_t end = block_.find(end_, position_);
    const std::size_t stop = end == std::string::npos ? block_.size() : end;
    if (!too_long_) line_.append(block_, position_, stop - position_);
    position_ = stop;
    if (line_.size() > limit_ + 1) {  // one byte more may be "\r"
      too_long_ = true;
      line_ = std::string();
    }
    if (end != std::string::npos) {
      ++position_;
      break;
    }
    if (!fill()) break;
  }
  if (!line_.empty() && line_.back() == '\r') line_.pop_back();
  if (line_.size() > limit_) {
    too_long_ = true;
    line_ = std::string();
  }
  return true;
}

}  // namespace quench
