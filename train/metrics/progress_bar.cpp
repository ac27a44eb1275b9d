#include "train/metrics/progress_bar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace quench {
namespace {

constexpr int kMinBarCells = 10;
constexpr int kMaxBarCells = 40;

std::string draw_bar(double done, int cells, bool unicode) {
  const int full = std::clamp(static_cast<int>(std::floor(done * cells)), 0, cells);
  std::string bar;
  if (unicode) {
    for (int i = 0; i < cells; ++i) bar += i < full ? "█" : "░";
    return bar;
  }
  for (int i = 0; i < cells; ++i) bar += i < full ? '=' : i == full ? '>' : ' ';
  return "[" + bar + "]";
}

}  // namespace

int progress_bar_columns(const std::string& text) {
  // Continuation bytes take no column.
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string render_progress_bar(const Progress& progress, int columns, bool unicode) {
  const bool bounded = progress.total_steps > 0;
  const double done =
      bounded ? std::clamp(static_cast<double>(progress.step) / static_cast<double>(progress.total_steps), 0.0, 1.0)
              : 0;
  const std::string percent = bounded ? fmt::format("{:.0f}%", std::floor(done * 100)) : "";
  const std::string counter = bounded ? fmt::format("{}/{} {}", progress.step, progress.total_steps, percent)
                                      : fmt::format("step {}", progress.step);

  // From the fullest form to the shortest; the bar takes the rest.
  const std::string eta = progress.eta_seconds ? "  eta " + format_duration(*progress.eta_seconds) : "";
  const std::string loss = fmt::format("  loss {:.2f}", progress.loss);
  const std::string rate = std::abs(progress.tokens_per_second) < 9e15
                               ? "  tok/s " + format_count(std::llround(progress.tokens_per_second))
                               : "";
  const int frame = unicode ? 1 : 3;  // blank, and brackets of an ASCII bar
  for (const std::string& tail : {loss + rate + eta, loss + eta, eta, std::string()}) {
    const int rest = progress_bar_columns(counter + tail);
    const int cells = std::min(columns - rest - frame, kMaxBarCells);
    if (bounded && cells >= kMinBarCells) return draw_bar(done, cells, unicode) + " " + counter + tail;
    if (!bounded && rest <= columns) return counter + tail;
  }
  for (const std::string& text : {counter, percent})
    if (progress_bar_columns(text) <= columns) return text;
  return "";
}

}  // namespace quench
