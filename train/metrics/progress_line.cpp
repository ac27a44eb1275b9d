#include "train/metrics/progress_line.h"

#include <unistd.h>

#include <algorithm>

#include "core/system/check.h"
#include "core/system/log.h"
#include "core/system/printable.h"
#include "core/system/transient_line.h"
#include "train/metrics/terminal.h"

namespace quench {
namespace {

constexpr auto kFirstDraw = std::chrono::milliseconds(500);
constexpr auto kRedraw = std::chrono::milliseconds(100);

double megabytes(double bytes) {
  return bytes * 1e-6;
}

}  // namespace

std::string progress_text(const std::string& what, std::uint64_t done, std::uint64_t total, double seconds) {
  const auto bytes = static_cast<double>(done), all = static_cast<double>(total);
  const double rate = seconds > 0 ? bytes / seconds : 0;
  if (total == 0) return fmt::format("{}  {:.0f} MB, {:.1f} MB/s", what, megabytes(bytes), megabytes(rate));
  const double left = rate > 0 ? std::max(all - bytes, 0.0) / rate : 0;
  return fmt::format("{}  {:.0f}%  {:.0f} of {:.0f} MB, {:.1f} MB/s, {:.0f} s left", what,
                     100 * std::min(bytes / all, 1.0), megabytes(bytes), megabytes(all), megabytes(rate), left);
}

ProgressLine::ProgressLine(std::string_view what)
    : what_(printable(what)), shown_(is_interactive(STDERR_FILENO) && console_log_level() <= LogLevel::info) {}

ProgressLine::~ProgressLine() {
  if (!line_.empty()) draw("");
}

void ProgressLine::update(std::uint64_t done, std::uint64_t total) {
  const Clock::time_point now = Clock::now();
  if (!shown_ || now - start_ < kFirstDraw || now - drawn_ < kRedraw) return;
  drawn_ = now;
  // Some terminals wrap a full line.
  const auto columns = static_cast<std::size_t>(std::max(terminal_columns(STDERR_FILENO) - 1, 0));
  draw(progress_text(what_, done, total, std::chrono::duration<double>(now - start_).count()).substr(0, columns));
}

// Back in the first column for other messages.
void ProgressLine::draw(const std::string& text) {
  const std::size_t excess = line_.size() > text.size() ? line_.size() - text.size() : 0;
  try {
    write_to_descriptor(STDERR_FILENO, text + std::string(excess, ' ') + "\r");
    line_ = text;
    set_transient_line(static_cast<int>(text.size()));
  } catch (const Error&) {
    shown_ = false;
    line_.clear();
  }
}

}  // namespace quench
