#pragma once
// Heat maps as inline SVG: named rows, cells in shades. Colours: page_style.h; cell text: <title>.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace quench {

// Shades 0 .. kHeatShades - 1: one hue of increasing density below kHeatBad, then warnings; the last: failures.
inline constexpr int kHeatShades = 8;
inline constexpr int kHeatBad = 5;

inline constexpr std::size_t kHeatTicks = 6;  // labels of a map with enough columns

// Adjacent cells of equal shade.
struct HeatSpan {
  std::size_t first = 0, last = 0;  // columns, inclusive
  int shade = 0;
  std::string text;
};

struct HeatRow {
  std::string label;
  std::vector<HeatSpan> spans;  // others are empty
};

struct HeatMapOptions {
  std::string title;
  std::string unit;
  std::size_t columns = 0;
  std::vector<std::pair<std::size_t, std::string>> ticks;
  std::vector<std::string> legend;
};

// Empty without rows or columns.
[[nodiscard]] std::string render_heat_map(const HeatMapOptions& options, const std::vector<HeatRow>& rows);

}  // namespace quench
