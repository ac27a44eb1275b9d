#pragma once
// Terminal progress of a long operation; none without a terminal.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace quench {

class ProgressLine {
 public:
  // `what`: "tokenizing", escaped (core/system/printable.h). On standard error if level info is enabled.
  explicit ProgressLine(std::string_view what);
  // Erases the line.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Bytes; total 0: unknown. At most 10 redraws per second, none within the first 0.5 s.
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
