#include "train/run/start_times.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace quench {
namespace {

// Age of this process in seconds, to a clock tick; 0 where /proc/self/stat has none.
double process_age() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  constexpr int kStartTime = 22, kFirstAfterName = 3;  // proc(5)
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = kFirstAfterName; i <= kStartTime; ++i) fields >> field;
  timespec now{};
  if (!fields || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const double started = std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
  const double age = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 - started;
  return age > 0 ? age : 0;
}

}  // namespace

StartTimes::StartTimes() : last_(std::chrono::steady_clock::now()), total_(process_age()) {
  phases_.emplace_back("program", total_);
}

void StartTimes::mark(std::string_view phase) {
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - last_).count();
  last_ = now;
  total_ += seconds;
  phases_.emplace_back(phase, seconds);
}

std::string StartTimes::to_text(std::int64_t step) const {
  constexpr double kShort = 0.05;
  std::string text = fmt::format("start: {:.2f} s to the end of step {}:", total_, step);
  double other = 0;
  for (const auto& [phase, seconds] : phases_) {
    if (seconds < kShort)
      other += seconds;
    else
      text += fmt::format(" {} {:.2f},", phase, seconds);
  }
  return text + fmt::format(" other {:.2f}", other);
}

}  // namespace quench
