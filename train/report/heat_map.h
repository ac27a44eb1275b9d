#pragma once
// Heat maps as inline SVG: named rows over columns, cells in a few shades from good to bad. Colours come from
// page_style.h; what a cell says stands in its <title>.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace quench {

// Shades 0 .. kHeatShades - 1: those below kHeatBad are of one colour and grow denser, the others warn, and the last is
// for what is broken.
inline constexpr int kHeatShades = 8;
inline constexpr int kHeatBad = 5;

inline constexpr std::size_t kHeatTicks = 6;  // labels below a map that has enough columns

// Neighbouring cells of a row that look alike.
struct HeatSpan {
  std::size_t first = 0, last = 0;  // columns, both included
  int shade = 0;
  std::string text;
};

struct HeatRow {
  std::string label;
  std::vector<HeatSpan> spans;  // columns without one stay empty
};

struct HeatMapOptions {
  std::string title;
  std::string unit;  // behind the title
  std::size_t columns = 0;
  std::vector<std::pair<std::size_t, std::string>> ticks;  // labels of columns
  std::vector<std::string> legend;                         // of the shades
};

// A <figure>; empty without rows or columns.
[[nodiscard]] std::string render_heat_map(const HeatMapOptions& options, const std::vector<HeatRow>& rows);

}  // namespace quench
