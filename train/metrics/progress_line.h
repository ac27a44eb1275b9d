#pragma once
// A line on a terminal that shows how far something long is; nothing where there is no terminal.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace quench {

class ProgressLine {
 public:
  // `what` is done, in words: "tokenizing"; shown as core/system/printable.h says. Shown on standard error while
  // messages of level info are.
  explicit ProgressLine(std::string_view what);
  // Leaves nothing on the line.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Bytes; a total of 0 is unknown. Redraws at most ten times a second, and not before the first half second is over.
  void update(std::uint64_t done, std::uint64_t total);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(const std::string& text);

  std::string what_;
  bool shown_;
  std::string line_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_ = start_;
};

// "tokenizing  34%  120 of 350 MB, 4.1 MB/s, 57 s left"
[[nodiscard]] std::string progress_text(const std::string& what, std::uint64_t done, std::uint64_t total,
                                        double seconds);

}  // namespace quench
