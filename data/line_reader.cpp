#include "data/line_reader.h"

#include <algorithm>

namespace quench {
namespace {
constexpr std::uint64_t kBlockBytes = 1 << 20;
}

LineReader::LineReader(const BinaryFile& file, std::uint64_t max_line_bytes) : file_(file), limit_(max_line_bytes) {}

bool LineReader::fill() {
  block_.resize(static_cast<std::size_t>(std::min(kBlockBytes, file_.size() - offset_)));
  position_ = 0;
  if (block_.empty()) return false;
  file_.read(offset_, std::as_writable_bytes(std::span(block_)));
  offset_ += block_.size();
  return true;
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
    const std::size_t end = block_.find('\n', position_);
    const std::size_t stop = end == std::string::npos ? block_.size() : end;
    if (!too_long_) line_.append(block_, position_, stop - position_);
    position_ = stop;
    if (line_.size() > limit_ + 1) {  // one more than the limit may be the "\r" of the line's end
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
